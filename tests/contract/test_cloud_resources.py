"""Volumes, snapshots and addresses over either store: made once, confirmed, billed until gone."""

import dataclasses
import datetime
import functools
import re
from typing import Any

import pytest

from platform_server.cloud import (
    beside,
    children,
    consent,
    costs,
    machines,
    requests,
    reserve,
    resources,
)
from platform_server.operations import records, states
from platform_server.store import contract
from provisioning import contract as provider
from provisioning import naming
from tests.support import cloud_desk
from tests.support.clouds import hetzner_bench
from tests.support.clouds import script as script_kit

VOLUME = provider.ChildKind.VOLUME
ADDRESS = provider.ChildKind.ADDRESS
SNAPSHOT = provider.ChildKind.SNAPSHOT


async def _order(desk: cloud_desk.Desk, **more: Any) -> resources.Made:
    values: dict[str, Any] = {
        "kind": VOLUME,
        "name": "data",
        "infra": "default",
        "connection": await desk.get(),
        "region": "fsn1",
        "size_gigabytes": 10,
    }
    wish = resources.Wish(**{**values, **more})
    return await desk.store.transact(lambda tx: resources.create(tx, wish=wish, asked=desk.asked))


async def _made(desk: cloud_desk.Desk, **more: Any) -> beside.Resource:
    made = await _order(desk, **more)
    await desk.carry_on()
    assert (await desk.stands(made.operation)).state == "done"
    return await _now(desk, made.resource.name)


async def _now(desk: cloud_desk.Desk, name: str) -> beside.Resource:
    return await desk.store.read(lambda tx: beside.get(tx, resource_id=name))


async def _machine(
    desk: cloud_desk.Desk,
    hetzner: hetzner_bench.HetznerBench,
    *,
    node: str = "web-1",
    region: str = "fsn1",
) -> str:
    """A machine of ours that is there; its ref."""
    owner = provider.Owner(
        installation=desk.installation,
        infra="default",
        operation=f"op-{node}",
        node=node,
        attempt=1,
    )
    ref = hetzner.plant(name=naming.name_of(owner), tags=naming.tags_of(owner))
    hetzner.settle()
    connection = await desk.get()
    await desk.store.transact(
        lambda tx: tx.execute(
            "INSERT INTO cloud_machines(machine_id, node_id, connection_id, provider, "
            "operation_id, region, size, image, template, provider_ref, ordered_at, ordered_by) "
            "VALUES (?, ?, ?, 'hetzner', ?, ?, 'cx23', 'debian-12', 't', ?, 0, 'x')",
            f"m-{node}",
            node,
            connection.connection_id,
            owner.operation,
            region,
            ref,
        )
    )
    return ref


async def test_a_volume_is_made_once_confirmed_and_billed(
    desk: cloud_desk.Desk, hetzner: hetzner_bench.HetznerBench
) -> None:
    begun = desk.clock.now()
    volume = await _made(desk)
    (thing,) = hetzner.ledger.living_things(desk.installation)
    assert (thing.kind, thing.ref) == ("volume", volume.provider_ref)
    assert hetzner.ledger.count("POST /v1/volumes") == 1
    assert volume.price is not None
    totals = await desk.store.read(
        lambda tx: costs.total_of(
            tx, subject_ids=[volume.child_id], now=begun + datetime.timedelta(hours=10)
        )
    )
    (total,) = totals[volume.child_id]
    assert total.hourly_micros == volume.price.hourly_micros
    assert total.spent_micros == 10 * volume.price.hourly_micros


@pytest.mark.parametrize(
    "armed",
    [
        script_kit.Armed(verb=script_kit.Verb.COMMIT_THEN_DROP),
        script_kit.Armed(verb=script_kit.Verb.COMMIT_THEN_5XX, status=504, html=True),
    ],
    ids=["dropped", "page-of-a-proxy"],
)
async def test_a_lost_answer_never_makes_a_second_volume(
    desk: cloud_desk.Desk, hetzner: hetzner_bench.HetznerBench, armed: script_kit.Armed
) -> None:
    hetzner.script.arm(armed, on="POST /v1/volumes")
    volume = await _made(desk)
    assert [one.ref for one in hetzner.ledger.living_things(desk.installation)] == [
        volume.provider_ref
    ]
    assert hetzner.ledger.count("POST /v1/volumes") == 1


async def test_what_was_never_made_is_sent_again_only_after_a_clean_look_up(
    desk: cloud_desk.Desk, hetzner: hetzner_bench.HetznerBench
) -> None:
    hetzner.script.arm(
        script_kit.Armed(verb=script_kit.Verb.BEFORE_5XX, status=500), on="POST /v1/volumes"
    )
    await _made(desk)
    names = hetzner.ledger.names()
    first = names.index("POST /v1/volumes")
    second = names.index("POST /v1/volumes", first + 1)
    assert "GET /v1/volumes" in names[first:second]
    assert len(hetzner.ledger.living_things(desk.installation)) == 1


async def test_a_quota_fails_the_order_which_leaves_nothing_and_can_be_retried(
    desk: cloud_desk.Desk, hetzner: hetzner_bench.HetznerBench
) -> None:
    hetzner.script.arm(
        script_kit.Armed(verb=script_kit.Verb.FAIL_CODE, code="resource_limit_exceeded"),
        on="POST /v1/volumes",
    )
    made = await _order(desk)
    await desk.carry_on()
    assert (await desk.stands(made.operation)).state == "failed"
    assert (await _now(desk, made.resource.child_id)).gone_at is not None
    await desk.store.transact(
        lambda tx: resources.retry(tx, operation_id=made.operation.operation_id, asked=desk.asked)
    )
    await desk.carry_on()
    assert (await desk.stands(made.operation)).state == "done"
    assert (await _now(desk, "data")).gone_at is None
    assert len(hetzner.ledger.living_things(desk.installation)) == 1


async def test_a_volume_is_attached_detached_and_deleted_until_that_is_confirmed(
    desk: cloud_desk.Desk, hetzner: hetzner_bench.HetznerBench
) -> None:
    volume = await _made(desk)
    ref = await _machine(desk, hetzner)
    attach = await desk.store.transact(
        lambda tx: resources.attach(tx, resource_id="data", machine_id="web-1", asked=desk.asked)
    )
    await desk.carry_on()
    assert (await desk.stands(attach.operation)).state == "done"
    assert hetzner.ledger.things[_key(volume, hetzner)].attached_to == ref
    with pytest.raises(resources.DoesNotFit, match="Detach it first"):
        await desk.store.transact(
            lambda tx: resources.delete(tx, resource_id="data", asked=desk.asked)
        )
    detach = await desk.store.transact(
        lambda tx: resources.detach(tx, resource_id="data", asked=desk.asked)
    )
    await desk.carry_on()
    assert (await desk.stands(detach.operation)).state == "done"
    delete = await desk.store.transact(
        lambda tx: resources.delete(tx, resource_id="data", asked=desk.asked)
    )
    await desk.carry_on()
    assert (await desk.stands(delete.operation)).state == "done"
    assert hetzner.ledger.living_things(desk.installation) == []
    assert (await _now(desk, volume.child_id)).gone_at is not None


def _key(resource: beside.Resource, hetzner: hetzner_bench.HetznerBench) -> str:
    (key,) = [key for key, one in hetzner.ledger.things.items() if one.ref == resource.provider_ref]
    return key


async def test_a_lock_at_the_provider_is_waited_for(
    desk: cloud_desk.Desk, hetzner: hetzner_bench.HetznerBench
) -> None:
    await _made(desk)
    await _machine(desk, hetzner)
    hetzner.script.arm(
        script_kit.Armed(verb=script_kit.Verb.FAIL_CODE, code="locked"),
        on="POST /v1/volumes/{id}/actions/attach",
        times=10,
    )
    attach = await desk.store.transact(
        lambda tx: resources.attach(tx, resource_id="data", machine_id="web-1", asked=desk.asked)
    )
    await desk.carry_on(rounds=20)
    assert (await desk.stands(attach.operation)).state == "done"


async def test_b56_a_volume_elsewhere_is_refused_and_both_facts_are_named(
    desk: cloud_desk.Desk, hetzner: hetzner_bench.HetznerBench
) -> None:
    await _made(desk, region="nbg1")
    await _machine(desk, hetzner, region="fsn1")
    with pytest.raises(resources.DoesNotFit, match=r"data is in nbg1.*web-1 in fsn1"):
        await desk.store.transact(
            lambda tx: resources.attach(
                tx, resource_id="data", machine_id="web-1", asked=desk.asked
            )
        )
    request = hetzner.request()
    volume = await _now(desk, "data")
    assert volume.provider_ref is not None
    address = await _made(desk, kind=ADDRESS, name="front", region="hel1", size_gigabytes=None)
    assert address.provider_ref is not None
    ordered = provider.Request(
        owner=request.owner,
        name=request.name,
        client_token=request.client_token,
        region="fsn1",
        size=request.size,
        image=request.image,
        first_boot=request.first_boot,
        volumes=(volume.provider_ref,),
        addresses=(address.provider_ref,),
    )
    async with desk.clouds.driver(
        "main", purpose="plan", actor=cloud_desk.ACTOR, changes=False
    ) as driver:
        plan = await driver.plan(ordered)
    text = " ".join(plan.refusals)
    assert re.search("nbg1", text)
    assert re.search("hel1", text)
    assert re.search("fsn1", text)


@pytest.mark.parametrize("is_soft", [True, False], ids=["shuts-down", "must-be-cut-off"])
async def test_b70_a_stable_address_outlives_its_machine_and_is_listed_with_its_price(
    desk: cloud_desk.Desk, hetzner: hetzner_bench.HetznerBench, *, is_soft: bool
) -> None:
    address = await _made(desk, kind=ADDRESS, name="front", size_gigabytes=None)
    ref = await _machine(desk, hetzner)
    hetzner.fake.heeds_shutdowns = is_soft
    attach = await desk.store.transact(
        lambda tx: resources.attach(tx, resource_id="front", machine_id="web-1", asked=desk.asked)
    )
    await desk.carry_on(rounds=30)
    assert (await desk.stands(attach.operation)).state == "done"
    assert hetzner.ledger.things[_key(address, hetzner)].attached_to == ref
    machine = hetzner.fake.servers[int(ref)]
    assert machine["public_net"]["ipv4"]["ip"] == address.address
    assert machine["status"] == "running"
    hard = hetzner.ledger.count("POST /v1/servers/{id}/actions/poweroff")
    assert (hard == 0) is is_soft
    living = [one for one in hetzner.fake.primary_ips.values() if one["type"] == "ipv4"]
    assert [str(one["id"]) for one in living] == [address.provider_ref]  # its former one is gone
    detach = await desk.store.transact(
        lambda tx: resources.detach(tx, resource_id="front", asked=desk.asked)
    )
    await desk.carry_on(rounds=30)  # a running machine would be left without an address
    refused = await desk.stands(detach.operation)
    assert refused.state == "failed"
    assert "Turn that off in the provider's console, then retry" in (refused.reason or "")
    assert hetzner.ledger.things[_key(address, hetzner)].attached_to == ref
    automatic = {one.ref for one in hetzner.ledger.living_things()} - {address.provider_ref}
    async with desk.clouds.driver(
        "main", purpose="delete", actor=cloud_desk.ACTOR, changes=True
    ) as driver:
        await driver.delete(ref, region="fsn1")
    hetzner.settle()
    left = {one.ref for one in hetzner.ledger.living_things()}
    assert left == {address.provider_ref}
    assert automatic.isdisjoint(left)
    listed = await desk.store.read(lambda tx: beside.list_page(tx, kind=ADDRESS, limit=10))
    assert [(one.name, one.address is not None, one.price is not None) for one in listed] == [
        ("front", True, True)
    ]


async def test_a_snapshot_is_taken_of_a_machine(
    desk: cloud_desk.Desk, hetzner: hetzner_bench.HetznerBench
) -> None:
    await _machine(desk, hetzner)
    snapshot = await _made(
        desk, kind=SNAPSHOT, name="golden", of="web-1", connection=None, size_gigabytes=None
    )
    assert snapshot.provider_ref is not None
    assert hetzner.ledger.count("POST /v1/servers/{id}/actions/create_image") == 1


async def test_the_same_name_is_taken_until_it_is_gone(desk: cloud_desk.Desk) -> None:
    await _order(desk)
    with pytest.raises(resources.NameTaken):
        await _order(desk)
    await _order(desk, kind=ADDRESS, size_gigabytes=None)  # of another kind


async def test_nothing_is_made_once_the_money_is_spent(
    desk: cloud_desk.Desk, hetzner: hetzner_bench.HetznerBench
) -> None:
    await _made(desk)
    caps = [consent.Caps(most_machines=1, most_hourly_micros=1, currency="EUR", named="policy")]
    with pytest.raises(reserve.CapReached):
        await _order(desk, name="more", caps=caps)
    assert hetzner.ledger.count("POST /v1/volumes") == 1


async def test_one_operation_at_a_time(
    desk: cloud_desk.Desk, hetzner: hetzner_bench.HetznerBench
) -> None:
    await _made(desk)
    await _machine(desk, hetzner)
    await desk.store.transact(
        lambda tx: resources.attach(tx, resource_id="data", machine_id="web-1", asked=desk.asked)
    )
    with pytest.raises(requests.Busy, match="attach-resource"):
        await desk.store.transact(
            lambda tx: resources.delete(tx, resource_id="data", asked=desk.asked)
        )


async def test_b76_an_operation_waits_while_the_connection_is_paused_and_goes_on_after(
    desk: cloud_desk.Desk, hetzner: hetzner_bench.HetznerBench
) -> None:
    made = await _order(desk)
    hetzner.script.is_token_revoked = True
    calls = len(hetzner.ledger.seen)
    await desk.carry_on(rounds=40, seconds=60)
    stands = await desk.stands(made.operation)
    assert stands.is_open
    assert len(hetzner.ledger.seen) - calls <= 10
    hetzner.script.is_token_revoked = False
    hetzner.fake.tokens["hz-the-next-token-0123456789"] = "rw"
    await desk.connecting.save(desk.wish(token="hz-the-next-token-0123456789"))
    await desk.carry_on()
    assert (await desk.stands(made.operation)).state == "done"
    assert hetzner.ledger.count("POST /v1/volumes") <= 2
    assert len(hetzner.ledger.living_things(desk.installation)) == 1


async def test_a_person_forgets_what_no_provider_answers_for(desk: cloud_desk.Desk) -> None:
    volume = await _made(desk)
    forgotten = await desk.store.transact(
        lambda tx: resources.forget(
            tx, resource_id="data", reason="The provider is no more.", asked=desk.asked
        )
    )
    assert forgotten.gone_at is not None
    (entry,) = await desk.actions("cloud.resources.forget")
    assert (entry["actor"], entry["child_id"]) == (cloud_desk.ACTOR, volume.child_id)


async def test_only_what_has_failed_is_retried(desk: cloud_desk.Desk) -> None:
    made = await _order(desk)
    with pytest.raises(requests.WrongState, match="requested"):
        await desk.store.transact(
            lambda tx: resources.retry(
                tx, operation_id=made.operation.operation_id, asked=desk.asked
            )
        )
    with pytest.raises(requests.NoSuchOperation):
        await desk.store.transact(
            lambda tx: resources.retry(tx, operation_id="none", asked=desk.asked)
        )
    found = await desk.store.read(
        lambda tx: records.find(tx, operation_id=made.operation.operation_id)
    )
    assert found is not None
    assert found.state is states.State.REQUESTED


async def _lent(
    desk: cloud_desk.Desk, hetzner: hetzner_bench.HetznerBench, *, name: str
) -> contract.Row:
    """Somebody's own volume, given to a machine of ours in the console and seen by the view."""
    async with desk.clouds.driver(
        "main", purpose="console", actor="person:stranger", changes=True
    ) as driver:
        theirs = await driver.create_child(
            VOLUME,
            owner=provider.Owner(
                installation="in-0000000000ff", infra="x", operation="op-x", node=name, attempt=1
            ),
            name=name,
            region="fsn1",
        )
        machine = await desk.store.read(lambda tx: machines.get(tx, machine_id="m-web-1"))
        assert machine.provider_ref is not None
        await driver.attach(theirs, to=machine.provider_ref)
        hetzner.settle()
        seen = await driver.describe(machine.provider_ref, region="fsn1")
    assert seen is not None
    hanging = [dataclasses.replace(one, name=name) for one in seen.children if one.kind is VOLUME]
    desk.clock.advance(60)
    await desk.store.transact(
        lambda tx: children.record(tx, machine=machine, found=hanging, now=desk.clock.now())
    )
    row = await desk.store.read(
        lambda tx: tx.fetch_one(
            "SELECT child_id, provider_ref FROM cloud_children WHERE provider_ref = ?", theirs.ref
        )
    )
    assert row is not None
    return row


async def test_a_volume_that_we_did_not_order_is_in_no_list_and_never_deleted(
    desk: cloud_desk.Desk, hetzner: hetzner_bench.HetznerBench
) -> None:
    await _machine(desk, hetzner)
    theirs = await _lent(desk, hetzner, name="data")
    assert await desk.store.read(lambda tx: beside.list_page(tx, kind=VOLUME, limit=9)) == []
    for word in ("data", str(theirs["child_id"])):
        for ask in (resources.detach, resources.delete):
            with pytest.raises(beside.NoSuchResource):
                await desk.store.transact(
                    functools.partial(ask, resource_id=word, asked=desk.asked)
                )
    living = [one.ref for one in hetzner.ledger.living_things() if one.kind == "volume"]
    assert living == [str(theirs["provider_ref"])]


async def test_a_name_never_means_what_somebody_else_made(
    desk: cloud_desk.Desk, hetzner: hetzner_bench.HetznerBench
) -> None:
    ours = await _made(desk)
    await _machine(desk, hetzner)
    theirs = await _lent(desk, hetzner, name="data")
    assert (await _now(desk, "data")).child_id == ours.child_id
    delete = await desk.store.transact(
        lambda tx: resources.delete(tx, resource_id="data", asked=desk.asked)
    )
    await desk.carry_on()
    assert (await desk.stands(delete.operation)).state == "done"
    living = [one.ref for one in hetzner.ledger.living_things() if one.kind == "volume"]
    assert living == [str(theirs["provider_ref"])]


async def test_what_no_longer_carries_our_mark_is_neither_given_nor_deleted(
    desk: cloud_desk.Desk, hetzner: hetzner_bench.HetznerBench
) -> None:
    volume = await _made(desk)
    await _machine(desk, hetzner)
    assert volume.provider_ref is not None
    hetzner.fake.volumes[int(volume.provider_ref)]["labels"]["enlist-operation"] = "op-x"
    attach = await desk.store.transact(
        lambda tx: resources.attach(tx, resource_id="data", machine_id="web-1", asked=desk.asked)
    )
    await desk.carry_on()
    assert (await desk.stands(attach.operation)).state == "failed"
    delete = await desk.store.transact(
        lambda tx: resources.delete(tx, resource_id="data", asked=desk.asked)
    )
    await desk.carry_on()
    assert (await desk.stands(delete.operation)).state == "failed"
    assert hetzner.ledger.count("DELETE /v1/volumes/{id}") == 0
    assert hetzner.ledger.count("POST /v1/volumes/{id}/actions/attach") == 0
