"""The sweeper over either store: cloud first, all pages, ours alone, after a grace."""

import datetime

import pytest

from platform_server.cloud import (
    adopting,
    costs,
    known,
    machines,
    orphan_kind,
    orphans,
    requests,
)
from platform_server.store import contract
from provisioning import contract as provider
from provisioning import naming
from tests.support import cloud_desk
from tests.support.clouds import bench as bench_kit
from tests.support.clouds import hetzner_bench
from tests.support.clouds import script as script_kit
from wire_protocol import ids

HOUR = datetime.timedelta(hours=1)
OTHER = "in-another-installation"


async def _connected(store: contract.Store, hetzner: hetzner_bench.HetznerBench) -> cloud_desk.Desk:
    desk = cloud_desk.place(store, hetzner, address=hetzner.address)
    await desk.connecting.save(desk.wish(token=hetzner_bench.TOKEN))
    return desk


def _tags(
    operation: str, *, installation: str = bench_kit.INSTALLATION, node: str = "web-1"
) -> dict[str, str]:
    owner = provider.Owner(
        installation=installation, infra="default", operation=operation, node=node, attempt=1
    )
    return dict(naming.tags_of(owner))


async def _listed(desk: cloud_desk.Desk) -> list[tuple[str, str]]:
    found = await desk.store.read(lambda tx: orphans.list_page(tx, limit=5000))
    return [(one.kind, one.provider_ref) for one in found]


async def _machine(desk: cloud_desk.Desk, *, ref: str | None, operation: str) -> None:
    connection = await desk.get()
    await desk.store.transact(
        lambda tx: tx.execute(
            "INSERT INTO cloud_machines(machine_id, node_id, connection_id, provider, "
            "operation_id, region, size, image, template, provider_ref, ordered_at, ordered_by) "
            "VALUES (?, ?, ?, 'hetzner', ?, 'fsn1', 'cx23', 'debian-12', 't', ?, 0, 'x')",
            f"m-{operation}",
            f"node-{operation}",
            connection.connection_id,
            operation,
            ref,
        )
    )


async def test_b10_a_machine_without_a_live_order_is_listed_with_what_it_costs(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench
) -> None:
    desk = await _connected(store, hetzner)
    ref = hetzner.plant(name="web-1-lost", tags=_tags("op-lost"))
    (swept,) = await desk.sweeper().sweep_all()
    assert (swept.new, swept.gone, swept.is_complete) == (1, 0, True)
    (orphan,) = await store.read(lambda tx: orphans.list_page(tx, limit=10))
    assert (orphan.kind, orphan.provider_ref, orphan.operation_id) == ("machine", ref, "op-lost")
    assert orphan.price is not None
    assert orphan.price.hourly_micros > 0
    assert orphan.made_at is not None
    (event,) = await desk.events("cloud-orphans.changed")
    assert event["some"] == [f"machine {ref}"]
    await desk.sweeper().sweep_all()
    assert len(await desk.events("cloud-orphans.changed")) == 1  # told once
    assert len(hetzner.ledger.living()) == 1  # reported, not deleted


async def test_b10_it_is_deleted_by_itself_only_if_the_settings_say_so_and_after_the_grace(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench
) -> None:
    desk = await _connected(store, hetzner)
    hetzner.plant(name="web-1-lost", tags=_tags("op-lost"))
    sweeper = desk.sweeper(orphans="delete", grace=HOUR)
    await sweeper.sweep_all()
    desk.clock.advance(3599)
    (swept,) = await sweeper.sweep_all()
    assert swept.deleting == 0
    desk.clock.advance(1)
    (swept,) = await sweeper.sweep_all()
    assert swept.deleting == 1
    await desk.carry_on()
    assert hetzner.ledger.living() == []
    assert await _listed(desk) == []
    (call,) = await desk.actions("cloud.call")
    assert (call["call"], call["actor"]) == ("DELETE /v1/servers/{id}", "platform:sweeper")


async def test_a_person_has_an_orphan_deleted_at_once_and_the_operation_confirms_it(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench
) -> None:
    desk = await _connected(store, hetzner)
    ref = hetzner.plant(name="web-1-lost", tags=_tags("op-lost"))
    await desk.sweeper().sweep_all()
    connection = await desk.get()
    made = await store.transact(
        lambda tx: orphan_kind.ask(
            tx,
            connection_id=connection.connection_id,
            kind="machine",
            provider_ref=ref,
            asked=desk.asked,
        )
    )
    again = await store.transact(
        lambda tx: orphan_kind.ask(
            tx,
            connection_id=connection.connection_id,
            kind="machine",
            provider_ref=ref,
            asked=desk.asked,
        )
    )
    assert again.operation.operation_id == made.operation.operation_id
    await desk.carry_on()
    assert (await desk.stands(made.operation)).state == "done"
    assert hetzner.ledger.living() == []
    assert hetzner.ledger.count("DELETE /v1/servers/{id}") == 1


async def test_b10_a_person_adopts_it_and_it_is_a_machine_like_any_other(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench
) -> None:
    desk = await _connected(store, hetzner)
    ref = hetzner.plant(name="web-1-lost", tags=_tags("op-lost"))
    desk.clock.advance(7200)
    await desk.sweeper().sweep_all()
    connection = await desk.get()

    async def adopt(node: str, *, provider_ref: str = ref) -> machines.Machine:
        return await store.transact(
            lambda tx: adopting.adopt(
                tx,
                connection=connection,
                provider_ref=provider_ref,
                node_id=ids.parse_node_id(node),
                installation=desk.installation,
                asked=desk.asked,
            )
        )

    with pytest.raises(orphans.NoSuchOrphan):
        await adopt("web-1", provider_ref="999")
    machine = await adopt("web-1")
    assert (machine.provider_ref, machine.counts, machine.node_id) == (ref, True, "web-1")
    assert await _listed(desk) == []
    (swept,) = await desk.sweeper(orphans="delete", grace=HOUR).sweep_all()
    assert swept.found == []
    assert machine.price is not None
    totals = await store.read(
        lambda tx: costs.total_of(tx, subject_ids=[machine.machine_id], now=desk.clock.now())
    )
    (total,) = totals[machine.machine_id]
    assert total.spent_micros == 2 * machine.price.hourly_micros  # since it was made
    hetzner.plant(name="web-1-more", tags=_tags("op-more"))
    await desk.sweeper().sweep_all()
    (left,) = await store.read(lambda tx: orphans.list_page(tx, limit=10))
    with pytest.raises(requests.NodeTaken):
        await adopt("web-1", provider_ref=left.provider_ref)
    (entry,) = await desk.actions("cloud.orphans.adopt")
    assert (entry["actor"], entry["target"]) == (cloud_desk.ACTOR, "web-1")


async def test_what_became_known_meanwhile_is_not_deleted(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench
) -> None:
    desk = await _connected(store, hetzner)
    ref = hetzner.plant(name="web-1-lost", tags=_tags("op-lost"))
    await desk.sweeper().sweep_all()
    (orphan,) = await store.read(lambda tx: orphans.list_page(tx, limit=10))
    operation = await store.transact(
        lambda tx: orphan_kind.delete(tx, orphan=orphan, asked=desk.asked)
    )
    await _machine(desk, ref=ref, operation="op-lost")
    await desk.carry_on()
    ended = await desk.stands(operation)
    assert (ended.state, ended.reason) == (
        "failed",
        "It belongs to something known by now, so it is not deleted.",
    )
    assert len(hetzner.ledger.living()) == 1
    await desk.sweeper().sweep_all()
    assert await _listed(desk) == []


async def test_what_is_ordered_or_known_is_no_orphan(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench
) -> None:
    desk = await _connected(store, hetzner)
    known_ref = hetzner.plant(name="known", tags=_tags("op-known"))
    hetzner.plant(name="ordered", tags=_tags("op-open"))
    hetzner.plant(name="doubted", tags=_tags("op-sent"))
    await _machine(desk, ref=known_ref, operation="op-known")
    await _machine(desk, ref=None, operation="op-sent")

    async def under_way(tx: contract.Tx) -> None:
        await tx.execute(
            "INSERT INTO operations(operation_id, kind, infra, state, request, created_at, "
            "created_by, updated_at) VALUES ('op-open', 'create-machine', 'default', 'creating', "
            "'{}', 0, 'x', 0)"
        )
        await tx.execute(
            "INSERT INTO cloud_attempts(operation_id, attempt, machine_id, name, client_token, "
            "request, request_sha256, state, written_at) VALUES ('op-sent', 1, 'm-op-sent', 'n', "
            "'t', '{}', ?, 'sent', 0)",
            b"x",
        )

    await store.transact(under_way)
    await desk.sweeper().sweep_all()
    assert await _listed(desk) == []


async def test_a_second_machine_of_an_order_that_has_ended_is_an_orphan(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench
) -> None:
    desk = await _connected(store, hetzner)
    first = hetzner.plant(name="one", tags=_tags("op-1"))
    second = hetzner.plant(name="two", tags=_tags("op-1"))
    await _machine(desk, ref=first, operation="op-1")
    await desk.sweeper().sweep_all()
    assert await _listed(desk) == [("machine", second)]


async def test_b74_two_installations_in_one_project_never_see_each_others_machines_as_orphans(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench
) -> None:
    desk = await _connected(store, hetzner)
    theirs = hetzner.plant(name="web-1", tags=_tags("op-1", installation=OTHER))
    hetzner.fake.servers[int(theirs)]["name"] = "web-1-op1"  # the very name and order of ours
    ours = hetzner.plant(name="web-1-ours", tags=_tags("op-1"))
    hetzner.fake.servers[int(ours)]["name"] = "web-1-op1"
    hetzner.plant(name="web-1", tags={})  # somebody's own, of the same name
    await desk.sweeper(orphans="delete", grace=HOUR).sweep_all()
    assert await _listed(desk) == [("machine", ours)]
    desk.clock.advance(3600)
    await desk.sweeper(orphans="delete", grace=HOUR).sweep_all()
    await desk.carry_on()
    assert theirs in {one.ref for one in hetzner.ledger.living()}
    assert len(hetzner.ledger.living()) == 2
    assert await _listed(desk) == []


async def test_an_orphan_whose_tags_were_taken_over_is_not_deleted(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench
) -> None:
    desk = await _connected(store, hetzner)
    ref = hetzner.plant(name="web-1-lost", tags=_tags("op-lost"))
    await desk.sweeper().sweep_all()
    (orphan,) = await store.read(lambda tx: orphans.list_page(tx, limit=10))
    hetzner.fake.servers[int(ref)]["labels"] = _tags("op-lost", installation=OTHER)
    operation = await store.transact(
        lambda tx: orphan_kind.delete(tx, orphan=orphan, asked=desk.asked)
    )
    await desk.carry_on()
    ended = await desk.stands(operation)
    assert (ended.state, ended.error_class) == ("failed", "needs-operator")
    assert len(hetzner.ledger.living()) == 1


async def test_what_is_gone_leaves_the_list_and_nothing_does_while_the_list_is_not_whole(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench
) -> None:
    desk = await _connected(store, hetzner)
    ref = hetzner.plant(name="web-1-lost", tags=_tags("op-lost"))
    await desk.sweeper().sweep_all()
    hetzner.fake.vanish(ref)
    hetzner.script.arm(
        script_kit.Armed(verb=script_kit.Verb.BEFORE_5XX, status=502), on="GET /v1/servers"
    )
    await desk.sweeper().sweep_all()
    assert await _listed(desk) == [("machine", ref)]
    (swept,) = await desk.sweeper().sweep_all()
    assert swept.gone == 1
    assert await _listed(desk) == []


async def test_b72_every_page_is_read_and_all_1001_are_found(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench
) -> None:
    desk = await _connected(store, hetzner)
    hetzner.fake.budget = 1e6
    for number in range(1001):
        hetzner.plant(name=f"lost-{number}", tags=_tags(f"op-{number}"))
    (swept,) = await desk.sweeper().sweep_all()
    assert (len(swept.found), swept.new) == (1001, 1001)
    assert len(await _listed(desk)) == 1001


def test_a_kept_volume_of_ours_that_nothing_knows_is_listed_and_a_machines_own_disk_is_not() -> (
    None
):
    owner = provider.Owner(
        installation=bench_kit.INSTALLATION, infra="default", operation="op", node="n", attempt=1
    )
    machine = provider.Instance(
        ref="1", name="n", region="r", power=provider.Power.RUNNING, raw_state="x", owner=owner
    )
    disk = provider.Child(kind=provider.ChildKind.DISK, ref="2", attached_to="1", owner=owner)
    volume = provider.Child(
        kind=provider.ChildKind.VOLUME, ref="3", attached_to="1", owner=owner, keep=True
    )
    left = provider.Child(kind=provider.ChildKind.INTERFACE, ref="4", owner=owner)
    foreign = provider.Child(kind=provider.ChildKind.VOLUME, ref="5")
    inventory = provider.Inventory(machines=(machine,), children=(disk, volume, left, foreign))
    nothing = known.Known(
        machine_refs=frozenset({"1"}), child_keys=frozenset(), open_operations=frozenset()
    )
    found = known.list_strays(inventory, known=nothing, installation=bench_kit.INSTALLATION)
    assert [one.key for one in found] == [("volume", "3"), ("interface", "4")]


async def test_the_machine_of_a_ready_node_is_never_deleted_by_rule(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench
) -> None:
    """Called gone once by mistake, its row counts no more, and its node works on."""
    desk = await _connected(store, hetzner)
    ref = hetzner.plant(name="web-1-lost", tags=_tags("op-lost"))
    await _machine(desk, ref=ref, operation="op-lost")

    async def mistaken(tx: contract.Tx) -> None:
        await tx.execute("UPDATE cloud_machines SET gone_at = 1")
        await tx.execute(
            "INSERT INTO nodes(node_id, state, connectivity, certificate_pem, "
            "certificate_sha256, pin, version, enrollment_id, enrolled_at) "
            "VALUES ('node-op-lost', 'ready', 'dial-out', 'c', 's', 'p', '1', 'e', 1)"
        )

    await store.transact(mistaken)
    sweeper = desk.sweeper(orphans="delete", grace=HOUR)
    await sweeper.sweep_all()
    desk.clock.advance(3600)
    (swept,) = await sweeper.sweep_all()
    assert swept.deleting == 0
    assert await _listed(desk) == [("machine", ref)]  # a person may still say so
    await store.transact(
        lambda tx: tx.execute("UPDATE nodes SET state = 'removed', removed_at = 2")
    )
    (swept,) = await sweeper.sweep_all()
    assert swept.deleting == 1
