"""Places in the mesh on both stores: one key and one address a node, whoever asks at once."""

import asyncio
import contextlib
import datetime
import ipaddress
import random
from collections.abc import Sequence

import pytest

from platform_server.mesh import addressing, founding, hub, members, places, readiness, sightings
from platform_server.store import contract
from runtime_kit import clock as clock_kit
from runtime_kit.wireguard import config, keys, programs
from tests.support import domain, waits
from wire_protocol import ids, mesh

NETWORK = ipaddress.ip_network("10.70.0.0/24")
SMALL = ipaddress.ip_network("10.70.0.0/29")  # the Platform and five nodes
NOW = domain.START


def new_key() -> str:
    return keys.public_key_of(keys.new_private_key())


def node(name: str) -> ids.NodeId:
    return ids.parse_node_id(name)


async def add_node(store: contract.Store, name: str, *, state: str = "enrolled") -> None:
    async def work(tx: contract.Tx) -> None:
        await tx.execute(
            "INSERT INTO nodes(node_id, infra, state, connectivity, certificate_pem, "
            "certificate_sha256, pin, generation, version, labels, reported_labels, "
            "enrollment_id, enrolled_at, removed_at) "
            "VALUES (?, 'default', ?, 'dial-out', '', ?, ?, 1, '0.1.0', '{}', '{}', 'e', 0, ?)",
            name,
            state,
            f"sha256:{name}",
            f"sha256:pin-{name}",
            1 if state == "removed" else None,
        )

    await store.transact(work)


async def admit(
    store: contract.Store,
    name: str,
    *,
    public_key: str | None = None,
    network: mesh.Network = NETWORK,
    chance: random.Random | None = None,
) -> members.Member | str:
    key = public_key or new_key()
    return await store.transact(
        lambda tx: members.admit(
            tx,
            node_id=node(name),
            public_key=key,
            network=network,
            chance=chance or random.Random(name),
            now=NOW,
        )
    )


async def live(store: contract.Store) -> dict[str, members.Member]:
    found = await store.read(members.list_live)
    return {member.node_id: member for member in found}


async def test_nodes_that_ask_at_once_get_an_address_each(store: contract.Store) -> None:
    # the same chance for all: every one of them draws the same addresses first
    got = await asyncio.gather(
        *(admit(store, f"n{number}", chance=random.Random(1)) for number in range(30))
    )
    addresses = [one.address for one in got if isinstance(one, members.Member)]
    assert len(addresses) == len(set(addresses)) == 30
    assert all(address in NETWORK for address in addresses)
    assert addressing.platform_address(NETWORK) not in addresses


async def test_a_full_network_gives_its_last_address_and_then_says_so(
    store: contract.Store,
) -> None:
    got = [await admit(store, f"n{number}", network=SMALL) for number in range(6)]
    given = {str(one.address) for one in got if isinstance(one, members.Member)}
    assert given == {f"10.70.0.{number}" for number in range(2, 7)}
    assert got[-1] == mesh.NETWORK_FULL
    await store.transact(lambda tx: members.leave(tx, node_id=node("n3")))
    assert isinstance(await admit(store, "late", network=SMALL), members.Member)


async def test_the_same_key_again_gets_the_same_place_and_another_key_the_same_address(
    store: contract.Store,
) -> None:
    key = new_key()
    first = await admit(store, "n1", public_key=key)
    again = await admit(store, "n1", public_key=key)
    changed = await admit(store, "n1", chance=random.Random(7))
    assert isinstance(first, members.Member)
    assert isinstance(changed, members.Member)
    assert again == first
    assert changed.address == first.address
    assert changed.public_key != first.public_key


async def test_a_key_is_one_nodes_alone(store: contract.Store) -> None:
    key = new_key()
    got = await asyncio.gather(
        *(admit(store, name, public_key=key) for name in ("n1", "n2", "n3", "n4"))
    )
    assert sorted(isinstance(one, members.Member) for one in got) == [False, False, False, True]
    assert {one for one in got if isinstance(one, str)} == {mesh.KEY_IN_USE}


async def test_a_node_whose_network_has_changed_gets_another_address(
    store: contract.Store,
) -> None:
    key = new_key()
    await admit(store, "n1", public_key=key)
    moved = await admit(store, "n1", public_key=key, network=ipaddress.ip_network("fd01::/64"))
    assert isinstance(moved, members.Member)
    assert moved.address.version == 6


async def test_a_tombstone_takes_no_part_and_its_address_is_freed(store: contract.Store) -> None:
    await add_node(store, "n1")
    await add_node(store, "n2", state="removed")
    for name in ("n1", "n2"):
        await admit(store, name)
    assert (await live(store)).keys() == {"n1"}
    assert await store.read(lambda tx: members.find_live(tx, node_id=node("n2"))) is None
    assert await store.transact(members.purge) == 1


async def test_every_engine_has_the_same_key_and_network(store: contract.Store) -> None:
    keyring = domain.new_keyring()
    found = await asyncio.gather(*(a_mesh(store, keyring=keyring, seed=seed) for seed in range(4)))
    assert len({one.public_key for one in found}) == 1
    assert len({one.network for one in found}) == 1
    assert found[0].network.is_private
    assert found[0].private_key.reveal() not in repr(found[0])
    row = await store.read(
        lambda tx: tx.fetch_one("SELECT sealed FROM sealed_secrets WHERE name = 'mesh-key'")
    )
    assert row is not None
    assert found[0].private_key.reveal().encode() not in bytes(row["sealed"])


async def a_mesh(store: contract.Store, *, keyring: object = None, seed: int = 1) -> founding.Mesh:
    return await founding.found(
        store,
        keyring=keyring or domain.new_keyring(),  # type: ignore[arg-type] # the domain's own
        network=None,
        endpoint=mesh.Endpoint(host="p.test", port=51820),
        keepalive_seconds=25,
        mtu=1280,
        chance=random.Random(seed),
        now=NOW,
    )


async def test_over_the_session_a_node_changes_its_key_and_that_is_recorded_once(
    store: contract.Store,
) -> None:
    await add_node(store, "n1")
    giving = places.Places(await a_mesh(store), chance=random.Random(1))

    async def ask(key: str) -> mesh.Answer:
        return await store.transact(
            lambda tx: giving.over_session(
                tx, node_id=node("n1"), public_key=key, environment="test", now=NOW
            )
        )

    first, second = new_key(), new_key()
    got = [await ask(first), await ask(first), await ask(second)]
    grants = [one.grant for one in got]
    assert None not in grants
    assert len({grant.address for grant in grants if grant}) == 1
    assert (await live(store))["n1"].public_key == second
    for table, column in (("action_log", "action"), ("events", "kind")):
        rows = await store.read(
            lambda tx, table=table, column=column: tx.fetch_all(  # type: ignore[misc]
                f"SELECT 1 FROM {table} WHERE {column} = 'node.mesh-changed' LIMIT 10"  # noqa: S608
            )
        )
        assert len(rows) == 2, table


async def test_a_removed_node_gets_no_place_over_a_session_that_is_still_open(
    store: contract.Store,
) -> None:
    await add_node(store, "n1", state="removed")
    giving = places.Places(await a_mesh(store), chance=random.Random(1))
    answer = await store.transact(
        lambda tx: giving.over_session(
            tx, node_id=node("n1"), public_key=new_key(), environment="test", now=NOW
        )
    )
    assert answer == mesh.Answer()
    assert await live(store) == {}


class FakeDevice:
    """An interface in memory: what it was told, and what it says it has seen."""

    def __init__(self, public_key: str) -> None:
        self.name = "mesh0"
        self.public_key = public_key
        self.peers: dict[str, config.Peer] = {}
        self.shaken: dict[str, datetime.datetime] = {}
        self.ours = True
        self.removed = 0
        self.applied = 0

    async def apply(self, peers: Sequence[config.Peer]) -> None:
        self.applied += 1
        self.peers = {peer.public_key: peer for peer in peers}

    async def set_peers(self, peers: Sequence[config.Peer]) -> None:
        self.peers |= {peer.public_key: peer for peer in peers}

    async def remove_peers(self, public_keys: Sequence[str]) -> None:
        for key in public_keys:
            self.peers.pop(key, None)

    async def look(self) -> config.State:
        return config.State(
            public_key=self.public_key,
            listen_port=51820,
            peers={
                key: config.PeerState(
                    public_key=key,
                    endpoint=None,
                    allowed=tuple(str(one) for one in peer.allowed),
                    handshake_at=self.shaken.get(key),
                    received_bytes=0,
                    sent_bytes=0,
                )
                for key, peer in self.peers.items()
            },
        )

    async def is_ours(self) -> bool:
        return self.ours

    async def remove(self) -> None:
        self.removed += 1


class Engine:
    """One engine's mesh over a fake interface."""

    def __init__(self, store: contract.Store, *, found: founding.Mesh) -> None:
        self.clock = clock_kit.ManualClock(NOW)
        self.device = FakeDevice(found.public_key)
        self.made = 0
        self.fault: programs.Fault | None = None
        self.hub = hub.Hub(
            store, mesh=found, make=self._make, clock=self.clock, chance=random.Random(1)
        )

    async def _make(self) -> hub.Device:
        if self.fault is not None:
            raise self.fault
        self.made += 1
        return self.device

    async def turn(self, *, after: float = hub.LOOK_SECONDS) -> None:
        self.clock.advance(after)
        await self.hub.turn()

    async def stop(self) -> None:
        task = asyncio.create_task(self.hub.run())
        await waits.pace()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.fixture
async def found(store: contract.Store) -> founding.Mesh:
    return await a_mesh(store)


async def event(store: contract.Store, kind: str, subject: str) -> None:
    from platform_server.audit import events  # noqa: PLC0415 - for this alone

    await store.transact(lambda tx: events.append(tx, at=NOW, kind=kind, subject=subject))


async def test_the_interface_follows_who_enrolls_and_who_is_removed(
    store: contract.Store, found: founding.Mesh
) -> None:
    engine = Engine(store, found=found)
    await engine.turn()
    assert engine.device.peers == {}
    await add_node(store, "n1")
    one = await admit(store, "n1", network=found.network)
    assert isinstance(one, members.Member)
    await event(store, "node.enrolled", "n1")
    await engine.turn(after=1)
    assert [peer.allowed for peer in engine.device.peers.values()] == [
        (ipaddress.ip_network(one.address),)  # its own address and nothing else
    ]
    changed = await admit(store, "n1", network=found.network)
    await event(store, "node.key-changed", "n1")
    await engine.turn(after=1)
    assert isinstance(changed, members.Member)
    assert engine.device.peers.keys() == {changed.public_key}
    await store.transact(
        lambda tx: tx.execute(
            "UPDATE nodes SET state = 'removed', removed_at = 1 WHERE node_id = 'n1'"
        )
    )
    await event(store, "node.removed", "n1")
    await engine.turn(after=1)
    assert engine.device.peers == {}


async def test_what_somebody_changed_on_the_interface_is_put_right(
    store: contract.Store, found: founding.Mesh
) -> None:
    await add_node(store, "n1")
    await admit(store, "n1", network=found.network)
    engine = Engine(store, found=found)
    await engine.turn()
    right = dict(engine.device.peers)
    engine.device.peers = {}
    await engine.turn()
    assert engine.device.peers == right
    (key, peer), *_ = right.items()
    engine.device.peers[key] = config.Peer(
        public_key=key, allowed=(*peer.allowed, ipaddress.ip_network("0.0.0.0/0"))
    )
    await engine.turn()
    assert engine.device.peers == right


async def test_an_interface_that_cannot_be_made_is_tried_again_and_told_of(
    store: contract.Store, found: founding.Mesh
) -> None:
    engine = Engine(store, found=found)
    engine.fault = programs.NotPermitted("ip: Operation not permitted")
    await engine.turn()
    assert engine.hub.fault == "ip: Operation not permitted"
    engine.fault = None
    await engine.turn(after=1)
    assert engine.made == 0  # not at once: it may fail for long
    await engine.turn(after=30)
    assert engine.hub.interface == "mesh0"
    assert not engine.hub.fault
    engine.device.ours = False
    await engine.turn()
    assert engine.hub.fault is not None


async def test_a_handshake_makes_a_node_connected_on_every_engine_until_it_is_too_old(
    store: contract.Store, found: founding.Mesh
) -> None:
    await add_node(store, "n1")
    one = await admit(store, "n1", network=found.network)
    assert isinstance(one, members.Member)
    engine = Engine(store, found=found)
    watch = readiness.Watch(store, clock=engine.clock)  # another engine's, in effect
    told: list[str] = []
    watch.on_up.append(told.append)
    await watch.read_all()
    await engine.turn()
    await watch.follow()
    assert (watch.lack(node("n1")), told) == (readiness.WAITING, [])
    assert watch.lack(node("stranger")) == readiness.NOT_JOINED
    engine.device.shaken[one.public_key] = engine.clock.now()
    await engine.turn()
    await watch.follow()
    assert (watch.lack(node("n1")), told) == (None, ["n1"])
    await engine.turn(after=config.LIVE_SECONDS - 5)
    assert watch.lack(node("n1")) is None
    await engine.turn(after=6)
    assert watch.lack(node("n1")) == readiness.SILENT
    rows = await store.read(
        lambda tx: tx.fetch_all(
            "SELECT kind FROM events WHERE kind LIKE 'node.mesh-%' ORDER BY seq LIMIT 10"
        )
    )
    assert [row["kind"] for row in rows] == ["node.mesh-up", "node.mesh-silent"]


async def test_a_handshake_from_before_the_clock_was_set_back_is_no_news(
    store: contract.Store, found: founding.Mesh
) -> None:
    await add_node(store, "n1")
    one = await admit(store, "n1", network=found.network)
    assert isinstance(one, members.Member)
    engine = Engine(store, found=found)
    await engine.turn()
    engine.device.shaken[one.public_key] = engine.clock.now() + datetime.timedelta(hours=1)
    await engine.turn()
    assert (await live(store))["n1"].handshake_at is None


async def test_a_new_key_waits_for_a_handshake_of_its_own(store: contract.Store) -> None:
    await add_node(store, "n1")
    before = await admit(store, "n1")
    await admit(store, "n1")
    assert isinstance(before, members.Member)
    late = sightings.Sighting(
        node_id=node("n1"), public_key=before.public_key, state="up", handshake_at=NOW
    )
    await store.transact(lambda tx: sightings.write(tx, sightings=[late], now=NOW))
    assert (await live(store))["n1"].handshake_at is None


async def test_one_engine_has_the_interface_and_gives_it_up_when_it_stops(
    store: contract.Store, found: founding.Mesh
) -> None:
    first, second = Engine(store, found=found), Engine(store, found=found)
    await first.turn()
    if store.dialect is contract.Dialect.POSTGRESQL:  # on SQLite there is one engine
        await second.turn()
        assert (first.hub.interface, second.hub.interface) == ("mesh0", None)
    await first.stop()
    assert first.device.removed == 1
    await second.turn()
    assert second.hub.interface == "mesh0"
