"""A way in by SSH over either store: shut at the provider when its time is up, once, on record."""

import dataclasses
import datetime
import json

import pytest

from platform_server.cloud import children, machines, ways_in
from platform_server.store import contract
from provisioning import contract as provider
from tests.support import cloud_desk
from tests.support.clouds import hetzner_bench
from tests.support.clouds import script as script_kit
from wire_protocol import times

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGNvdW50ZXJwYXJ0 somebody"
UNTIL = datetime.timedelta(hours=1)


@pytest.fixture
def store_kind() -> str:
    """One store: what differs between the two is shown in the tests of connections."""
    return "sqlite"


@pytest.fixture
async def desk(store: contract.Store, hetzner: hetzner_bench.HetznerBench) -> cloud_desk.Desk:
    """A Platform with a machine that lets somebody in for an hour."""
    made = cloud_desk.place(store, hetzner, address=hetzner.address)
    await made.connecting.save(made.wish(token=hetzner_bench.TOKEN))
    until = made.clock.now() + UNTIL
    ssh = provider.Ssh(public_key=KEY, sources=("192.0.2.7/32",), until=until)
    request = dataclasses.replace(hetzner.request(operation="op-1", node="web-1"), ssh=ssh)
    async with made.clouds.driver(
        "main", purpose="create", actor=cloud_desk.ACTOR, changes=True
    ) as driver:
        created = await driver.create(request)
    connection = await made.get()
    wish = {
        "ssh": {
            "public_key": KEY,
            "sources": ["192.0.2.7/32"],
            "until": times.to_rfc3339(until),
        }
    }

    async def record(tx: contract.Tx) -> None:
        await tx.execute(
            "INSERT INTO cloud_machines(machine_id, node_id, connection_id, provider, "
            "operation_id, region, size, image, template, provider_ref, wish, ordered_at, "
            "ordered_by) VALUES ('m1', 'web-1', ?, 'hetzner', 'op-1', 'fsn1', 'cx23', "
            "'debian-12', 't', ?, ?, 0, 'x')",
            connection.connection_id,
            created.ref,
            json.dumps(wish, sort_keys=True),
        )
        machine = await machines.get(tx, machine_id="m1")
        await children.record(tx, machine=machine, found=created.children, now=made.clock.now())

    await store.transact(record)
    hetzner.settle()
    return made


def _is_open(hetzner: hetzner_bench.HetznerBench) -> bool:
    (firewall,) = hetzner.fake.firewalls.values()
    return "22" in [rule["port"] for rule in firewall["rules"] if rule["direction"] == "in"]


def _task(desk: cloud_desk.Desk) -> ways_in.WaysIn:
    return ways_in.WaysIn(
        desk.store, clouds=desk.clouds, environment=cloud_desk.ENVIRONMENT, clock=desk.clock
    )


async def test_port_22_is_open_until_its_time_is_up_and_shut_then(
    desk: cloud_desk.Desk, hetzner: hetzner_bench.HetznerBench
) -> None:
    assert _is_open(hetzner)
    assert await _task(desk).tick() == 0
    desk.clock.advance(3600)
    assert await _task(desk).tick() == 1
    assert not _is_open(hetzner)
    assert len(hetzner.ledger.living()) == 1  # the machine stays
    (entry,) = await desk.actions("cloud.machines.ssh-shut")
    assert (entry["target"], entry["operation"]) == ("web-1", "op-1")
    calls = len(hetzner.ledger.seen)
    assert await _task(desk).tick() == 0
    assert len(hetzner.ledger.seen) == calls


async def test_a_provider_without_a_clear_answer_is_asked_again(
    desk: cloud_desk.Desk, hetzner: hetzner_bench.HetznerBench
) -> None:
    desk.clock.advance(3600)
    hetzner.script.arm(
        script_kit.Armed(verb=script_kit.Verb.BEFORE_5XX, status=503),
        on="DELETE /v1/firewalls/{id}",
    )
    assert await _task(desk).tick() == 0
    assert _is_open(hetzner)
    assert await desk.actions("cloud.machines.ssh-shut") == []
    assert await _task(desk).tick() == 1
    assert not _is_open(hetzner)


async def test_what_is_gone_is_not_asked_about(
    desk: cloud_desk.Desk, hetzner: hetzner_bench.HetznerBench
) -> None:
    desk.clock.advance(3600)
    await desk.store.transact(lambda tx: tx.execute("UPDATE cloud_machines SET gone_at = 1"))
    calls = len(hetzner.ledger.seen)
    assert await _task(desk).tick() == 0
    assert len(hetzner.ledger.seen) == calls


async def test_a_group_that_a_later_attempt_made_is_shut_as_well(
    desk: cloud_desk.Desk, hetzner: hetzner_bench.HetznerBench
) -> None:
    desk.clock.advance(3600)
    assert await _task(desk).tick() == 1
    (number,) = hetzner.fake.firewalls
    await desk.store.transact(
        lambda tx: tx.execute(
            "UPDATE cloud_children SET provider_ref = '999' WHERE kind = 'security-group'"
        )
    )
    hetzner.fake.firewalls[999] = hetzner.fake.firewalls.pop(number)
    hetzner.fake.firewalls[999]["id"] = 999
    assert await _task(desk).tick() == 1
    assert len(await desk.actions("cloud.machines.ssh-shut")) == 2
