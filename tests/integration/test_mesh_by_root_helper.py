"""The mesh of an Agent without rights: the root helper makes the interface, and nothing wider."""

import asyncio
import contextlib
import ipaddress
import pathlib
from collections.abc import AsyncIterator, Iterator

import pytest

from root_helper import mesh as helper_mesh
from root_helper import refusals
from runtime_kit import secret
from runtime_kit.wireguard import backends, config, device, keys, programs
from tests.support import mesh_hosts, root_helpers, waits
from wire_protocol import helper_protocol as helper
from wire_protocol import helper_state
from worker_agent.door import root_helper
from worker_agent.mesh import by_helper

NETWORK = ipaddress.ip_network("fd98:0:0:1::/64")
HUB, ONE = NETWORK[1], NETWORK[0x11]
PORT = 51_820


@pytest.fixture
def hosts() -> Iterator[tuple[mesh_hosts.Host, mesh_hosts.Host]]:
    mesh_hosts.require_wireguard()
    with mesh_hosts.around_a_hub(1) as (hub, (machine,)):
        yield hub, machine


@contextlib.asynccontextmanager
async def served(folder: pathlib.Path, host: mesh_hosts.Host) -> AsyncIterator[root_helper.Door]:
    """The root helper of that host, and the Agent's door to it."""
    machine = root_helpers.installed(folder, "1.0.0")
    serving = root_helpers.serving(
        machine,
        mesh=helper_mesh.Mesh(host.runner, resolver_files=[folder / "resolv.conf"]),
        limits_=root_helpers.limits(idle_seconds=60.0),
    )
    with root_helpers.listening(machine) as listener:
        running = asyncio.create_task(serving.run(listener))
        try:
            yield root_helper.Door(machine.socket)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


def wanted(private_key: secret.Secret, *, address: config.Address = ONE) -> config.Wanted:
    return config.Wanted(
        name="enlist0",
        owner="whatever the Agent says",
        private_key=private_key,
        listen_port=None,
        address=config.interface(address, network=config.alone(address)),
        mtu=1280,
    )


def platform(public_key: str, *, at: str, address: config.Address = HUB) -> config.Peer:
    return config.Peer(
        public_key=public_key,
        allowed=(config.alone(address),),
        endpoint=config.Endpoint(address=ipaddress.ip_address(at), port=PORT),
        keepalive_seconds=5,
    )


async def test_the_interface_is_made_seen_and_removed_for_an_agent_that_may_not(
    hosts: tuple[mesh_hosts.Host, mesh_hosts.Host], tmp_path: pathlib.Path
) -> None:
    hub, machine = hosts
    theirs, ours = keys.new_private_key(), keys.new_private_key()
    at_hub = await device.ensure(
        config.Wanted(
            name="mesht0",
            owner="test hub",
            private_key=theirs,
            listen_port=PORT,
            address=config.interface(HUB, network=NETWORK),
            mtu=1280,
        ),
        backend=backends.of_this_machine(hub.runner),
        run=hub.runner,
    )
    own_key = keys.public_key_of(ours)
    await at_hub.apply([config.Peer(public_key=own_key, allowed=(config.alone(ONE),))])
    async with served(tmp_path, machine) as door:
        made = by_helper.Device(wanted(ours), door=door)
        await made.apply([platform(keys.public_key_of(theirs), at=machine.hub)])
        await made.route(config.alone(HUB))
        async for _ in waits.looks(seconds=20):
            assert await made.is_ours()
            found = await made.look()
            if found.peers[keys.public_key_of(theirs)].handshake_at is not None:
                break
        assert found.public_key == own_key
        assert await asyncio.to_thread(mesh_hosts.hears, hub, at=str(HUB), sender=machine)
        await made.remove()
        assert not await made.is_ours()
    assert machine.interfaces() == []


@pytest.mark.parametrize(
    ("address", "other", "reason"),
    [
        ("fd98::11", "2001:4860:4860::8888", "private use"),
        ("10.9.0.2", "8.8.8.8", "private use"),
        ("169.254.1.1", "10.9.0.1", "private use"),
        ("127.0.0.2", "10.9.0.1", "private use"),
        ("10.9.0.1", "10.9.0.1", "one address"),
        ("10.9.0.2", "NEIGHBOUR", "of the network of"),
        ("10.9.0.2", "10.7.0.53", "of the name server"),
        ("10.7.0.53", "10.9.0.1", "of the name server"),
        ("10.9.0.2", "10.6.0.1", "of the routers"),
        ("10.9.0.2", "10.5.1.2", "of the routes"),
        ("10.5.1.2", "10.9.0.1", "of the routes"),
    ],
)
async def test_no_address_of_somebody_elses_is_claimed(
    hosts: tuple[mesh_hosts.Host, mesh_hosts.Host],
    tmp_path: pathlib.Path,
    address: str,
    other: str,
    reason: str,
) -> None:
    _, machine = hosts
    (tmp_path / "resolv.conf").write_text("search example\nnameserver 10.7.0.53 \n")
    machine.run("ip", "route", "add", "10.5.0.0/16", "via", machine.hub)
    machine.run("ip", "route", "add", "default", "via", "10.6.0.1", "dev", "cable0", "onlink")
    machine.run("ip", "route", "add", "blackhole", "10.0.0.0/8")
    asked = wanted(keys.new_private_key(), address=ipaddress.ip_address(address))
    at = ipaddress.ip_address(machine.hub if other == "NEIGHBOUR" else other)
    async with served(tmp_path, machine) as door:
        made = by_helper.Device(asked, door=door)
        public = keys.public_key_of(keys.new_private_key())
        await made.apply([platform(public, at=machine.hub, address=at)])
        with pytest.raises(programs.Fault, match=reason):
            await made.route(config.alone(at))
    assert machine.interfaces() == []


async def test_an_agent_that_asks_again_and_again_leads_one_address_at_a_time_and_no_more(
    hosts: tuple[mesh_hosts.Host, mesh_hosts.Host], tmp_path: pathlib.Path
) -> None:
    _, machine = hosts
    private = keys.new_private_key()
    public = keys.public_key_of(keys.new_private_key())
    async with served(tmp_path, machine) as door:
        for other in (HUB, NETWORK[2], ipaddress.ip_address("10.9.0.1"), NETWORK[3]):
            made = by_helper.Device(wanted(private), door=door)
            await made.apply([platform(public, at=machine.hub, address=other)])
            await made.route(config.alone(other))
            assert await made.is_ours()
            led = [
                line.split()[0]
                for family in ("-4", "-6")
                for line in machine.run("ip", family, "route", "show", "dev", made.name).split("\n")
                if line and "proto kernel" not in line
            ]
            assert led == [str(other)]
        await made.remove()
    assert machine.interfaces() == []


async def test_what_is_no_key_is_refused(
    hosts: tuple[mesh_hosts.Host, mesh_hosts.Host], tmp_path: pathlib.Path
) -> None:
    _, machine = hosts
    asked = helper_state.MeshUp(
        private_key="A" * 43 + "\n",
        address=ONE,
        mtu=1280,
        platform_address=HUB,
        platform_public_key=keys.public_key_of(keys.new_private_key()),
        endpoint_address=ipaddress.ip_address(machine.hub),
        endpoint_port=PORT,
        keepalive_seconds=5,
    )
    async with served(tmp_path, machine) as door:
        with pytest.raises(helper.Refused) as refused:
            helper.parse_done(await door.ask(asked.to_line()), state="up")
    assert refused.value.code == refusals.Code.MALFORMED
    assert machine.interfaces() == []
