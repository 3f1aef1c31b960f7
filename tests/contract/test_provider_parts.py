"""What goes with a machine at every provider, and what was only lent to it.

The Platform's own judgement, by what each provider says of a thing: its own parts are known as its
own before and after its end, and a stranger's thing that hung on it is not touched.
"""

import dataclasses
from collections.abc import Iterable

import pytest

from platform_server.cloud import parting
from provisioning import contract, naming, outcomes
from tests.support.clouds.asking import settled, until_gone
from tests.support.clouds.bench import Bench

KIND = contract.ChildKind
CAPABILITY = {
    KIND.VOLUME: contract.Capability.VOLUMES,
    KIND.ADDRESS: contract.Capability.ADDRESSES,
}
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ4h1k3Wq0Vt2mC5d8f9g0h1i2j3k4l5m6n7o8p9q0r1 person"
STRANGER = "in-0000000000ff"


def _named(
    created: contract.Created, machine: contract.Instance
) -> dict[tuple[KIND, str], contract.Child]:
    return {(one.kind, one.ref): one for one in (*machine.children, *created.children)}


def _is_parted(
    found: contract.Child, *, request: contract.Request, created: contract.Created
) -> bool:
    named = {(one.kind, one.ref) for one in created.children if not one.keep}
    return parting.is_parted_from(
        found,
        owners={(request.owner.installation, request.owner.operation)},
        machine_refs={created.ref},
        is_answered=(found.kind, found.ref) in named,
    )


async def _made(
    bench: Bench, driver: contract.Driver, asked: contract.Request
) -> tuple[contract.Request, contract.Created]:
    request = await settled(driver, asked)
    created = await driver.create(request)
    bench.settle()
    return request, created


async def _end_parts(
    bench: Bench,
    driver: contract.Driver,
    parts: Iterable[contract.Child],
    *,
    request: contract.Request,
    created: contract.Created,
) -> None:
    """Deletes as the Platform does: whatever was seen on the machine, whatever `keep` said."""
    for one in parts:
        found = await driver.describe_child(one)
        if found is not None and not _is_parted(found, request=request, created=created):
            await driver.delete_child(one)
            bench.settle()


async def _until_done(bench: Bench, asking: Iterable[object]) -> None:
    for one in asking:
        try:
            await one()  # type: ignore[operator]
        except outcomes.Fault as fault:
            if fault.topic is not outcomes.Topic.STATE:
                raise
        else:
            bench.settle()
            return
        bench.clock.advance(61)
        bench.settle()
    raise AssertionError("It is in use for ever.")


@pytest.mark.parametrize("kind", [KIND.VOLUME, KIND.ADDRESS], ids=str)
async def test_what_was_lent_to_a_machine_and_taken_back_is_not_deleted_with_it(
    bench: Bench, driver: contract.Driver, kind: contract.ChildKind
) -> None:
    if CAPABILITY[kind] not in driver.capabilities:
        pytest.skip(f"{bench.provider} lends no {kind}")
    request, created = await _made(bench, driver, bench.request())
    owner = dataclasses.replace(bench.request().owner, installation=STRANGER, operation="op-9")
    lent = await driver.create_child(
        kind,
        owner=owner,
        name=naming.child_name(owner, kind),
        region=bench.region,
        size_gigabytes=bench.volume_gigabytes if kind is KIND.VOLUME else None,
        of=created.ref if kind is KIND.VOLUME else None,
    )
    bench.settle()
    if bench.provider == "azure":  # a card there has one address, and gives it up first
        for one in created.children:
            if one.kind is kind is KIND.ADDRESS:
                await driver.detach(one)
    await _until_done(bench, [lambda: driver.attach(lent, to=created.ref)] * 6)
    machine = await driver.describe(created.ref, region=request.region)
    assert machine is not None
    parts = {**_named(created, machine), (lent.kind, lent.ref): lent}
    await _until_done(bench, [lambda: driver.detach(lent)] * 6)
    await driver.delete(created.ref, region=request.region)
    await until_gone(bench, driver, created.ref, request.region)
    await _end_parts(bench, driver, parts.values(), request=request, created=created)
    assert [one.ref for one in bench.ledger.living_things()] == [lent.ref]


@pytest.mark.parametrize(
    "sources",
    [None, ("203.0.113.0/24",), ()],
    ids=["plain", "ssh-from", "ssh"],
)
async def test_what_was_made_for_a_machine_is_known_as_its_own_and_all_deleted(
    bench: Bench, driver: contract.Driver, sources: tuple[str, ...] | None
) -> None:
    asked = bench.request()
    if sources is not None:
        asked = dataclasses.replace(asked, ssh=contract.Ssh(public_key=KEY, sources=sources))
        if (await driver.plan(asked)).refusals:
            pytest.skip(f"{bench.provider} takes no key like this")
    request, created = await _made(bench, driver, asked)
    machine = await driver.describe(created.ref, region=request.region)
    assert machine is not None
    parts = [one for one in _named(created, machine).values() if not one.keep]
    for one in parts:
        found = await driver.describe_child(one)
        assert found is not None
        assert not _is_parted(found, request=request, created=created), found
    await driver.delete(created.ref, region=request.region)
    await until_gone(bench, driver, created.ref, request.region)
    await _end_parts(bench, driver, parts, request=request, created=created)
    assert bench.ledger.living_things() == []
