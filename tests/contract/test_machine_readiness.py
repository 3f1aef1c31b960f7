"""When an ordered machine counts as a node: running is not enough, nor is having enrolled."""

import datetime
import ipaddress
import pathlib
import random

import pytest

from platform_server.mesh import members, readiness, sightings
from platform_server.nodes import requirement
from platform_server.store import contract
from runtime_kit.wireguard import keys
from tests.support import domain, gateways, machine_orders, scripted_agent
from tests.support.clouds import pocket
from wire_protocol import ids

WEB = ids.NodeId("web-1")
KEY = keys.public_key_of(keys.new_private_key())
NETWORK = ipaddress.ip_network("fd00:1::/64")


@pytest.fixture
def store_kind() -> str:
    """One store: that both follow the mesh alike is shown beside it."""
    return "sqlite"


async def test_s23_with_a_mesh_an_order_is_active_only_after_wireguard_has_proved_the_node_too(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    lacks: list[requirement.Requirement] = []

    def lack(node_id: ids.NodeId) -> str | None:
        return lacks[0](node_id)

    async with gateways.engine(store, folder=tmp_path, lack=lack) as engine:
        watch = readiness.Watch(store, clock=engine.clock)
        watch.on_up.append(engine.gate.ask_health)
        lacks.append(watch.lack)
        cloud = pocket.Pocket(clock=engine.clock)
        orders = machine_orders.Engine(engine.domain, cloud=cloud)
        made = await orders.order()
        await orders.until(made, "booting")
        guest = machine_orders.Guest(orders)
        await orders.carry_on(rounds=3)
        secret = domain.new_key()
        guest.certificate = domain.certificate_of(secret)
        assert (await guest.knocks()).status == 201
        identity = scripted_agent.Identity(
            node_id=WEB, key=secret, certificate_pem=guest.certificate
        )
        engine.gate.joined(WEB, pin=identity.pin, certificate_pem=guest.certificate)
        agent = await engine.open(identity)  # mutual TLS and a heartbeat: all but the mesh
        assert agent.asked == ["health"]
        await agent.beat()
        assert await engine.state("web-1") == ("enrolled", readiness.NOT_JOINED)
        await orders.until(made, "verifying")
        await orders.carry_on(rounds=10)
        assert await orders.state(made) == "verifying"

        await _admitted(store, now=engine.clock.now())
        await watch.read_all()
        await orders.carry_on(rounds=3)
        assert watch.lack(WEB) == readiness.WAITING  # a place is no proof
        assert await orders.state(made) == "verifying"

        await _shaken(store, at=engine.clock.now())
        await watch.follow()
        await engine.settle()
        assert await engine.state("web-1") == ("ready", None)
        assert await orders.until(made, "active") == "active"
        await machine_orders.require_standard(orders, mutating=1)


async def _admitted(store: contract.Store, *, now: datetime.datetime) -> None:
    got = await store.transact(
        lambda tx: members.admit(
            tx,
            node_id=WEB,
            public_key=KEY,
            network=NETWORK,
            chance=random.Random(3),
            now=now,
        )
    )
    assert isinstance(got, members.Member)


async def _shaken(store: contract.Store, *, at: datetime.datetime) -> None:
    seen = sightings.Sighting(node_id=WEB, public_key=KEY, state=sightings.UP, handshake_at=at)
    await store.transact(lambda tx: sightings.write(tx, sightings=[seen], now=at))
