"""What a WireGuard interface promises, whoever makes it: the kernel, or wireguard-go beside it."""

import ipaddress
import json
from collections.abc import Iterator

import pytest

from runtime_kit import secret
from runtime_kit.wireguard import backends, config, device, keys, programs
from tests.support import mesh_hosts, waits
from wire_protocol import mesh

NETWORK = ipaddress.ip_network("fd98:0:0:1::/64")
HUB, ONE = NETWORK[1], NETWORK[0x11]
PORT = 51_820


class Side:
    """One end: its host, its key, what it wants, and every command that was run for it."""

    def __init__(self, host: mesh_hosts.Host, *, kind: str, address: config.Address) -> None:
        self.host = host
        self.private_key = keys.new_private_key()
        self.public_key = keys.public_key_of(self.private_key)
        self.commands: list[tuple[str, ...]] = []
        self.backend: backends.Backend = (
            backends.Kernel(self.run) if kind == "kernel" else backends.Userspace(self.run)
        )
        self.wanted = config.Wanted(
            name="mesht0",
            owner=f"test {host.name}",
            private_key=self.private_key,
            listen_port=PORT,
            address=config.interface(address, network=NETWORK),
            mtu=1280,
        )

    async def run(self, *command: str, stdin: bytes = b"") -> bytes:
        self.commands.append(command)
        return await self.host.runner(*command, stdin=stdin)

    async def ensure(self) -> device.Device:
        return await device.ensure(self.wanted, backend=self.backend, run=self.run)

    def peer(self, other: "Side", *, at: str | None = None) -> config.Peer:
        """The other as this one's peer."""
        endpoint = None
        if at is not None:
            endpoint = config.Endpoint(address=ipaddress.ip_address(at), port=PORT)
        return config.Peer(
            public_key=other.public_key,
            allowed=(ipaddress.ip_network(other.wanted.address.ip),),
            endpoint=endpoint,
            keepalive_seconds=None if at is None else 5,
        )


@pytest.fixture(params=["kernel", "wireguard-go"])
def kind(request: pytest.FixtureRequest) -> str:
    mesh_hosts.require_wireguard()
    if request.param == "kernel" and not mesh_hosts.has_kernel_kind():
        pytest.skip("the kernel of this machine has no WireGuard")
    if request.param == "wireguard-go" and programs.find("wireguard-go") is None:
        pytest.skip("wireguard-go is not installed")
    return str(request.param)


@pytest.fixture
def sides(kind: str) -> Iterator[tuple[Side, Side]]:
    with mesh_hosts.around_a_hub(1) as (hub, (machine,)):
        yield Side(hub, kind=kind, address=HUB), Side(machine, kind=kind, address=ONE)


@pytest.fixture
async def connected(
    sides: tuple[Side, Side],
) -> tuple[Side, device.Device, Side, device.Device]:
    """Both ends, after their handshake."""
    hub, one = sides
    at_hub, at_one = await hub.ensure(), await one.ensure()
    await at_hub.apply([hub.peer(one)])
    await at_one.apply([one.peer(hub, at=one.host.hub)])
    async for _ in waits.looks(seconds=20):
        if (await at_hub.look()).peers[one.public_key].handshake_at is not None:
            break
    return hub, at_hub, one, at_one


async def test_two_ends_shake_hands_and_carry_what_is_for_their_addresses(
    connected: tuple[Side, device.Device, Side, device.Device],
) -> None:
    hub, at_hub, one, _ = connected
    found = (await at_hub.look()).peers[one.public_key]
    assert found.endpoint is not None  # learned from its call: it may be behind translation
    assert found.endpoint.startswith(one.host.address)
    assert mesh_hosts.hears(hub.host, at=str(HUB), sender=one.host)
    assert mesh_hosts.hears(one.host, at=str(ONE), sender=hub.host)


async def test_a_peer_cannot_send_from_an_address_that_is_not_its_own(
    connected: tuple[Side, device.Device, Side, device.Device],
) -> None:
    hub, _, one, at_one = connected
    another = str(NETWORK[0x99])
    one.host.run("ip", "addr", "add", f"{another}/128", "dev", at_one.name, "nodad")
    assert not mesh_hosts.hears(hub.host, at=str(HUB), sender=one.host, source=another)
    assert mesh_hosts.hears(hub.host, at=str(HUB), sender=one.host, source=str(ONE))


async def test_a_second_start_takes_the_interface_up_and_keeps_the_session(
    connected: tuple[Side, device.Device, Side, device.Device],
) -> None:
    hub, at_hub, one, _ = connected
    before = (await at_hub.look()).peers[one.public_key]
    again = await hub.ensure()
    await again.apply([hub.peer(one)])
    after = (await again.look()).peers[one.public_key]
    assert again.name == at_hub.name
    assert (after.endpoint, after.handshake_at) == (before.endpoint, before.handshake_at)


async def test_a_peer_that_is_removed_is_gone_at_once_and_others_stay(
    connected: tuple[Side, device.Device, Side, device.Device],
) -> None:
    hub, at_hub, one, _ = connected
    stranger = Side(one.host, kind="kernel", address=NETWORK[0x55])
    await at_hub.set_peers([hub.peer(stranger)])
    assert (await at_hub.look()).peers.keys() == {one.public_key, stranger.public_key}
    await at_hub.remove_peers([one.public_key, "A" * 42 + "E="])
    assert (await at_hub.look()).peers.keys() == {stranger.public_key}
    assert not mesh_hosts.hears(hub.host, at=str(HUB), sender=one.host)


async def test_an_interface_that_was_just_made_by_a_killed_start_is_taken_up(
    sides: tuple[Side, Side],
) -> None:
    hub, _ = sides
    await hub.backend.create("mesht0")
    assert (await hub.ensure()).name == "mesht0"
    assert hub.host.interfaces() == ["mesht0"]


def _identity(side: Side, name: str) -> dict[str, object]:
    """What makes it this very interface; its state may settle a little later by itself."""
    (found,) = json.loads(side.host.run("ip", "-j", "link", "show", name))
    return {key: found[key] for key in ("ifindex", "ifname", "ifalias", "mtu")}


async def test_somebody_elses_interface_is_left_alone(sides: tuple[Side, Side]) -> None:
    hub, _ = sides
    theirs = hub.host.runner
    await hub.backend.create("mesht0")
    await theirs("ip", "link", "set", "dev", "mesht0", "alias", "theirs")
    await theirs("ip", "link", "add", "mesht1", "type", "veth", "peer", "name", "cable9")
    before = _identity(hub, "mesht0")
    made = await hub.ensure()
    await made.apply([])
    assert made.name == "mesht2"
    await made.remove()
    assert _identity(hub, "mesht0") == before
    assert sorted(hub.host.interfaces()) == ["mesht0", "mesht1"]


async def test_removing_leaves_neither_interface_nor_rule(sides: tuple[Side, Side]) -> None:
    hub, _ = sides
    rules = [hub.host.run("ip", family, "rule") for family in ("-4", "-6")]
    made = await hub.ensure()
    await made.apply([])
    assert hub.host.run("ip", "-6", "rule") != rules[1]
    await made.remove()
    await made.remove()
    assert hub.host.interfaces() == []
    assert [hub.host.run("ip", family, "rule") for family in ("-4", "-6")] == rules


async def test_an_interface_that_somebody_deleted_is_told_of(sides: tuple[Side, Side]) -> None:
    hub, _ = sides
    made = await hub.ensure()
    await made.apply([])
    assert await made.is_ours()
    hub.host.run("ip", "link", "del", made.name)
    assert not await made.is_ours()
    with pytest.raises(programs.Fault):
        await made.look()
    again = await hub.ensure()
    await again.apply([])  # the rules of the deleted one are there still, and do not disturb
    assert await again.is_ours()


async def test_the_private_key_stands_in_no_argument_and_no_printed_form(
    connected: tuple[Side, device.Device, Side, device.Device],
) -> None:
    hub, at_hub, _, _ = connected
    key = hub.private_key.reveal()
    assert key not in mesh_hosts.words_of(hub.commands)
    assert key not in repr(hub.wanted)
    assert key not in repr(await at_hub.look())
    assert key not in repr(at_hub)


async def test_keys_are_what_wg_itself_makes() -> None:
    mesh_hosts.require_wireguard()
    theirs = (await programs.run("wg", "genkey")).decode().strip()
    for private in (keys.new_private_key(), secret.Secret(theirs)):
        by_wg = await programs.run("wg", "pubkey", stdin=private.reveal().encode())
        public = keys.public_key_of(private)
        assert public == by_wg.decode().strip() == mesh.parse_public_key(public)
