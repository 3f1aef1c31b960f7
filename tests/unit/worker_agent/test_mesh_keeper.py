"""The machine's end of the mesh, over an interface in memory and a clock moved by hand."""

import datetime
import ipaddress
import pathlib
import random
from collections.abc import Sequence

import pytest

from runtime_kit import clock as clock_kit
from runtime_kit import failures as network
from runtime_kit import private_files
from runtime_kit.wireguard import config, keys, programs
from wire_protocol import ids, mesh
from worker_agent.mesh import endpoints, grant_file, keeper, key, place
from worker_agent.settings import documents, paths

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
PLATFORM_KEY = keys.public_key_of(keys.new_private_key())
GRANT = mesh.Grant(
    address=ipaddress.ip_address("fd00::5"),
    network=ipaddress.ip_network("fd00::/64"),
    platform_address=ipaddress.ip_address("fd00::1"),
    platform_public_key=PLATFORM_KEY,
    endpoint=mesh.Endpoint(host="p.test", port=51820),
    keepalive_seconds=25,
    mtu=1280,
)
MEMBER = keeper.Member(platform_id=ids.PlatformId("p"), node_id=ids.parse_node_id("w1"))


class FakeDevice:
    """An interface in memory."""

    def __init__(self, wanted: config.Wanted) -> None:
        self.name = wanted.name
        self.wanted = wanted
        self.peer: config.Peer | None = None
        self.shaken: datetime.datetime | None = None
        self.received = 0
        self.routes: list[str] = []
        self.ours = True
        self.removed = 0

    async def apply(self, peers: Sequence[config.Peer]) -> None:
        (self.peer,) = peers

    async def set_peers(self, peers: Sequence[config.Peer]) -> None:
        (self.peer,) = peers

    async def route(self, network: config.Network) -> None:
        self.routes.append(str(network))

    async def look(self) -> config.State:
        assert self.peer is not None
        seen = config.PeerState(
            public_key=self.peer.public_key,
            endpoint=str(self.peer.endpoint),
            allowed=tuple(str(one) for one in self.peer.allowed),
            handshake_at=self.shaken,
            received_bytes=self.received,
            sent_bytes=0,
        )
        public_key = keys.public_key_of(self.wanted.private_key)
        return config.State(public_key=public_key, listen_port=1, peers={seen.public_key: seen})

    async def is_ours(self) -> bool:
        return self.ours

    async def remove(self) -> None:
        self.removed += 1


class Machine:
    """A worker's folder, and everything around its keeper."""

    def __init__(self, folder: pathlib.Path, *, grant: mesh.Grant | None = GRANT) -> None:
        self.where = paths.Paths(folder=folder)
        private_files.ensure_private_folder(folder)
        grant_file.write(self.where.mesh, grant)
        self.clock = clock_kit.ManualClock(NOW)
        self.devices: list[FakeDevice] = []
        self.fault: programs.Fault | None = None
        self.nudged: list[str] = []
        self.resolved: list[str] = []
        self.addresses: list[str] = ["2001:db8::1", "192.0.2.1"]
        self.keeper = keeper.Keeper(
            self.where,
            member=MEMBER,
            clock=self.clock,
            chance=random.Random(1),
            maker=self._make,
            nudger=lambda address: self.nudged.append(str(address)),
            resolver=self._resolve,
        )

    async def _make(self, wanted: config.Wanted) -> keeper.Device:
        if self.fault is not None:
            raise self.fault
        self.devices.append(FakeDevice(wanted))
        return self.devices[-1]

    async def _resolve(self, host: str, port: int) -> Sequence[str]:
        self.resolved.append(f"{host}:{port}")
        if not self.addresses:
            raise OSError("no such name")
        return self.addresses

    async def turn(self, *, after: float = keeper.TURN_SECONDS) -> None:
        self.clock.advance(after)
        await self.keeper.turn()

    @property
    def device(self) -> FakeDevice:
        return self.devices[-1]

    def told(self) -> tuple[str, str | None] | None:
        state = self.keeper.state
        return None if state is None else (state.state, state.reason)

    def state(self) -> str | None:
        state = self.keeper.state
        return None if state is None else state.state


@pytest.fixture
def machine(tmp_path: pathlib.Path) -> Machine:
    return Machine(tmp_path / "w")


async def test_the_interface_is_what_the_place_says_and_reaches_the_platform_alone(
    machine: Machine,
) -> None:
    await machine.turn()
    wanted, peer = machine.device.wanted, machine.device.peer
    assert str(wanted.address) == "fd00::5/128"
    assert (wanted.listen_port, wanted.mtu) == (None, 1280)
    assert peer is not None
    assert peer.allowed == (ipaddress.ip_network("fd00::1"),)
    assert (str(peer.endpoint), peer.keepalive_seconds) == ("[2001:db8::1]:51820", 25)
    assert machine.device.routes == ["fd00::1/128"]
    assert machine.nudged == ["fd00::1"]


async def test_it_is_up_by_a_young_handshake_and_waits_without_one(machine: Machine) -> None:
    await machine.turn()
    assert machine.told() == ("waiting", "No answer from [2001:db8::1]:51820 by UDP.")
    machine.device.shaken, machine.device.received = machine.clock.now(), 92
    await machine.turn()
    assert machine.told() == ("up", None)
    assert machine.keeper.state is not None
    assert machine.keeper.state.handshake_age_seconds == 5
    await machine.turn(after=keeper.SILENT_SECONDS)
    assert machine.state() == "up"
    await machine.turn(after=1)
    assert machine.state() == "waiting"


async def test_an_address_that_does_not_answer_gives_way_to_the_next_and_names_are_asked_anew(
    machine: Machine,
) -> None:
    tried = []
    for _ in range(3):
        await machine.turn(after=keeper.TRY_ADDRESS_SECONDS)
        assert machine.device.peer is not None
        tried.append(str(machine.device.peer.endpoint))
    machine.addresses = ["198.51.100.7"]  # it has moved
    await machine.turn(after=keeper.TRY_ADDRESS_SECONDS)
    assert machine.device.peer is not None
    tried.append(str(machine.device.peer.endpoint))
    assert tried == [
        "[2001:db8::1]:51820",
        "192.0.2.1:51820",
        "[2001:db8::1]:51820",
        "198.51.100.7:51820",
    ]
    assert len(machine.devices) == 1


async def test_an_address_that_answers_is_kept(machine: Machine) -> None:
    await machine.turn()
    before = machine.device.peer
    for _ in range(10):
        machine.device.shaken = machine.clock.now()
        machine.device.received += 32
        await machine.turn(after=keeper.TRY_ADDRESS_SECONDS)
    assert machine.device.peer is before


async def test_a_clock_that_is_set_changes_nothing(machine: Machine) -> None:
    await machine.turn()
    machine.device.shaken = machine.clock.now()
    for jump in (3600, -7200, 86_400):
        machine.device.received += 32
        machine.clock.jump(jump)
        await machine.turn()
        assert machine.state() == "up"


FAULTS = {
    "rights are missing": programs.NotPermitted("ip: Operation not permitted"),
    "a program is missing": programs.ProgramMissing("wg is not installed"),
    "the kernel has none": programs.Unsupported("This machine has no WireGuard"),
}


@pytest.mark.parametrize("case", FAULTS)
async def test_it_says_why_it_failed_and_tries_again_later_where(
    machine: Machine, case: str
) -> None:
    machine.fault = FAULTS[case]
    await machine.turn()
    assert machine.told() == ("failed", str(FAULTS[case]))
    machine.fault = None
    await machine.turn(after=1)
    assert machine.devices == []
    await machine.turn(after=keeper.RETRY_SECONDS[1])
    assert machine.state() == "waiting"


async def test_a_name_without_an_address_is_told_and_asked_again(machine: Machine) -> None:
    machine.addresses = []
    await machine.turn()
    assert machine.told() == ("failed", "The name p.test cannot be resolved.")
    machine.addresses = ["192.0.2.1"]
    await machine.turn(after=keeper.RETRY_SECONDS[1])
    assert machine.state() == "waiting"


async def test_an_interface_that_somebody_took_away_is_made_again(machine: Machine) -> None:
    await machine.turn()
    machine.device.ours = False
    await machine.turn()
    assert machine.state() == "failed"
    await machine.turn(after=keeper.RETRY_SECONDS[1])
    assert len(machine.devices) == 2


async def test_without_a_place_there_is_no_interface_and_no_state(tmp_path: pathlib.Path) -> None:
    machine = Machine(tmp_path / "w", grant=None)
    await machine.turn()
    assert (machine.devices, machine.told()) == ([], None)
    machine.keeper.take(GRANT)
    await machine.turn()
    assert machine.told() is not None
    machine.keeper.take(None)
    await machine.turn()
    assert machine.device.removed == 1
    assert machine.state() is None


class Platform:
    """Answers the question of the place; `taken` are keys that other nodes have."""

    def __init__(self, answer: mesh.Answer) -> None:
        self.answer = answer
        self.taken: set[str] = set()
        self.asked: list[str] = []
        self.silent = False

    async def ask(self, method: str, body: bytes) -> bytes:
        assert method == "mesh"
        if self.silent:
            raise network.NetworkFailure("gone")
        asked = mesh.parse_request(body).public_key
        self.asked.append(asked)
        if asked in self.taken:
            return mesh.Answer(refused=mesh.KEY_IN_USE).to_bytes()
        return self.answer.to_bytes()


async def test_a_place_that_has_moved_is_learned_when_a_session_opens(machine: Machine) -> None:
    await machine.turn()
    moved = mesh.Grant(
        **{name: getattr(GRANT, name) for name in GRANT.__dataclass_fields__ if name != "endpoint"},
        endpoint=mesh.Endpoint(host="192.0.2.99", port=4000),
    )
    platform = Platform(mesh.Answer(grant=moved))
    machine.keeper.session_opened(platform.ask)
    await machine.turn()
    assert machine.resolved == ["p.test:51820", "192.0.2.99:4000"]
    assert grant_file.read(machine.where.mesh) == moved


async def test_a_silent_platform_changes_nothing(machine: Machine) -> None:
    platform = Platform(mesh.Answer())
    platform.silent = True
    machine.keeper.session_opened(platform.ask)
    await machine.turn()
    assert grant_file.read(machine.where.mesh) == GRANT
    assert machine.told() is not None


async def test_a_key_that_another_node_has_is_replaced_and_asked_for_once_more(
    machine: Machine,
) -> None:
    before = keys.public_key_of(key.ensure(machine.where))
    platform = Platform(mesh.Answer(grant=GRANT))
    platform.taken.add(before)
    assert await place.ask(machine.where, asker=platform.ask) == GRANT
    assert platform.asked[0] == before
    assert platform.asked[1:] == [keys.public_key_of(key.ensure(machine.where))]


async def test_it_is_asked_once_a_session_and_not_while_none_is_open(machine: Machine) -> None:
    platform = Platform(mesh.Answer(grant=GRANT))
    machine.keeper.session_opened(platform.ask)
    for _ in range(10):
        await machine.turn()
    assert len(platform.asked) == 1
    machine.keeper.session_closed()
    await machine.turn(after=keeper.ASK_SECONDS[1])
    assert len(platform.asked) == 1


async def test_a_key_that_was_replaced_is_told_at_once_and_put_on_the_interface(
    machine: Machine,
) -> None:
    platform = Platform(mesh.Answer(grant=GRANT))
    machine.keeper.session_opened(platform.ask)
    await machine.turn()
    fresh = keys.public_key_of(key.replace(machine.where))
    await machine.turn()
    await machine.turn()
    assert platform.asked[1:] == [fresh]
    assert keys.public_key_of(machine.device.wanted.private_key) == fresh


DAMAGED = {
    "empty": b"",
    "cut short": b"AAECAwQF",
    "no base64": b"!" * 44,
    "something else": b"\x00" * 5000,
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_key_file_is_made_anew_that_is(tmp_path: pathlib.Path, case: str) -> None:
    where = paths.Paths(folder=tmp_path / "w")
    private_files.ensure_private_folder(where.identity)
    private_files.write_private(where.mesh_key, DAMAGED[case])
    made = key.ensure(where)
    assert key.ensure(where) == made
    assert where.mesh_key.stat().st_mode & 0o777 == 0o600


def test_a_key_that_others_could_read_is_replaced(tmp_path: pathlib.Path) -> None:
    where = paths.Paths(folder=tmp_path / "w")
    before = key.ensure(where)
    where.mesh_key.chmod(0o644)
    assert key.ensure(where) != before


def test_a_damaged_place_is_told_and_never_read_as_another(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "mesh.json"
    private_files.write_private(path, b'{"file_version": 1, "address": "fd00::5"}')
    with pytest.raises(documents.Damaged, match=r"mesh\.json"):
        grant_file.read(path)


def test_the_marks_of_two_nodes_differ_though_one_name_begins_like_the_other() -> None:
    other = keeper.Member(platform_id=MEMBER.platform_id, node_id=ids.parse_node_id("w10"))
    assert other.mark != MEMBER.mark
    assert endpoints.RESOLVE_SECONDS < keeper.TRY_ADDRESS_SECONDS
