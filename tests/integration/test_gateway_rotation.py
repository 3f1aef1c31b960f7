"""A Platform changes under nodes that dial out: keys, certificate, address. None joins again."""

import contextlib
import dataclasses
import datetime
import json
import pathlib
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import certificates, gateway_port, machine, operators, postgres, real_platform
from wire_protocol import join_token

pytestmark = pytest.mark.timeout(240)
LOOPBACK = "127.0.0.1"
OTHER = "127.0.0.2"
QUICK = {"ENLIST_GATEWAY__HEARTBEAT_SECONDS": "1"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A machine that dials out, joined for real."""

    node_id: str
    folder: pathlib.Path

    def statement(self) -> dict[str, Any]:
        """What the statement says that it holds."""
        return gateway_port.read_statement(json.loads((self.folder / "trust.json").read_text()))

    def start(self) -> machine.Agent:
        return machine.Machine(data_dir=self.folder, port=0).start_agent()

    @contextlib.contextmanager
    def running(self) -> Iterator[machine.Agent]:
        with machine.Machine(data_dir=self.folder, port=0).agent() as agent:
            yield agent

    def sessions(self, agent: machine.Agent) -> int:
        """How many sessions its Agent has opened."""
        return agent.log.read_text().count('"Session open"')


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rig:
    """A Platform and where its nodes keep their data."""

    platform: real_platform.RealPlatform
    folder: pathlib.Path

    @property
    def pins(self) -> list[str]:
        return list(self.platform.api("GET", "/platform")["gateway_pins"])

    @property
    def served(self) -> str:
        return gateway_port.pin(self.platform.said["gateway"])

    def rotate(self, *, port: str = "gateway", seconds: int) -> None:
        asked = {"port": port, "after_seconds": seconds}
        self.platform.api("POST", "/platform/rotate-tls-key", asked)

    def join(self, node_id: str, *more: str) -> Node:
        node = Node(node_id=node_id, folder=self.folder / node_id)
        token = machine.issue(self.platform, node_id)
        arguments = ("worker", "join", "-", "--data-dir", str(node.folder), *more)
        real_platform.run_enlist(*arguments, stdin=token)
        return node

    def wait_ready(self, node: Node) -> int:
        """Waits until it is ready, and gives its generation, which rises with each session."""
        found = machine.wait_for_state(self.platform, node.node_id, "ready", seconds=60)
        return int(found["generation"])

    def wait_follows(self, node: Node) -> None:
        """Waits until the node holds the present statement."""
        present = gateway_port.statement(self.platform)
        operators.wait_until(
            lambda: node.statement() == present,
            what=f"{node.node_id} holds the new statement",
            seconds=90,  # an Agent asks for trust at most once a minute
        )

    def replace_engine(self, node: Node) -> None:
        """Another engine takes over, so that every session has to be opened again."""
        before = int(machine.node(self.platform, node.node_id)["generation"])
        self.platform.process.send_signal(signal.SIGHUP)
        operators.wait_until(
            lambda: self.generation(node) > before, what=f"{node.node_id} has come back"
        )
        self.wait_ready(node)

    def generation(self, node: Node) -> int:
        with contextlib.suppress(OSError, AssertionError):  # while no engine answers
            return int(machine.node(self.platform, node.node_id)["generation"])
        return 0


@pytest.fixture
def rig(tmp_path: pathlib.Path) -> Iterator[Rig]:
    with real_platform.running(tmp_path / "platform", environment=QUICK) as platform:
        yield Rig(platform=platform, folder=tmp_path)


def test_e6_a_planned_switch_is_known_ahead_and_keeps_every_session(rig: Rig) -> None:
    (old,) = rig.pins
    before = rig.join("before-1")
    with before.running() as agent:
        generation = rig.wait_ready(before)
        rig.rotate(seconds=3600)
        served, following = rig.pins
        assert (served, rig.served) == (old, old)
        rig.wait_follows(before)
        assert before.statement()["pins"] == {
            "enrollment": rig.platform.said["pins"],
            "gateway": [old, following],
        }
        during = rig.join("during-1")
        kept = json.loads((during.folder / "agent.json").read_text())
        assert kept["gateway_pins"] == [old, following]
        with during.running() as other:
            rig.wait_ready(during)
            rig.rotate(seconds=1)  # the day comes
            operators.wait_until(lambda: rig.pins == [following], what="the next key is served")
            assert rig.served == following
            for node, its in ((before, agent), (during, other)):
                assert node.sessions(its) == 1
            assert rig.wait_ready(before) == generation
            later = rig.join("later-1")
            with later.running():
                rig.wait_ready(later)
            rig.replace_engine(before)
            rig.wait_ready(during)
            assert rig.served == following
            for its in (agent, other):
                assert "other key" not in its.log.read_text()
                assert "PinMismatch" not in its.log.read_text()


def test_e8_a_join_token_of_the_overlap_carries_both_pins_of_the_enrollment_port(
    rig: Rig,
) -> None:
    rig.rotate(port="enrollment", seconds=3600)
    shown = rig.platform.api("GET", "/platform")
    assert len(shown["pins"]) == 2
    token = join_token.decode(machine.issue(rig.platform, "web-1"))
    assert list(token.pins) == shown["pins"]


def test_e10_a_key_changed_at_once_strands_neither_who_is_there_nor_who_is_away(rig: Rig) -> None:
    here, away = rig.join("here-1"), rig.join("away-1")
    with away.running():
        rig.wait_ready(away)
    with here.running() as agent:
        generation = rig.wait_ready(here)
        rig.rotate(port="gateway", seconds=0)
        rig.rotate(port="enrollment", seconds=0)
        (new,) = rig.pins
        assert rig.served == new
        rig.wait_follows(here)
        assert (here.sessions(agent), rig.wait_ready(here)) == (1, generation)
        with away.running():
            rig.wait_ready(away)
            rig.wait_follows(away)
        rig.replace_engine(here)


def test_e16_a_certificate_renewed_with_the_same_key_is_served_at_once_and_drops_no_session(
    rig: Rig,
) -> None:
    node = rig.join("web-1")
    url = rig.platform.said["gateway"]
    with node.running() as agent:
        generation = rig.wait_ready(node)
        pin, first = rig.served, gateway_port.leaf(url)
        with contextlib.closing(sqlite3.connect(rig.platform.data_dir / "enlist.db")) as store:
            store.execute("PRAGMA busy_timeout = 10000")
            with store:  # as if its end had come near
                store.execute("DELETE FROM certificates WHERE name LIKE 'gateway:%'")
        rig.rotate(port="enrollment", seconds=3600)  # has the engine look at every port
        second = gateway_port.leaf(url)
        assert second.serial_number != first.serial_number
        assert second.not_valid_after_utc - first.not_valid_after_utc < datetime.timedelta(days=1)
        assert rig.served == pin == rig.pins[0]
        rig.wait_follows(node)
        assert (node.sessions(agent), rig.wait_ready(node)) == (1, generation)


def test_a_gateway_on_another_port_is_found_by_who_was_away(tmp_path: pathlib.Path) -> None:
    enrollment = machine.free_port()
    with real_platform.running(
        tmp_path / "platform", environment=QUICK, enrollment_port=enrollment
    ) as platform:
        rig = Rig(platform=platform, folder=tmp_path)
        node = rig.join("web-1")
        former = platform.said["gateway"]
    with (
        real_platform.running(
            tmp_path / "platform", environment=QUICK, enrollment_port=enrollment
        ) as platform,
        node.running(),
    ):
        assert platform.said["gateway"] != former
        Rig(platform=platform, folder=tmp_path).wait_ready(node)


def test_a_platform_that_moves_is_followed_when_the_new_place_was_named_before(
    tmp_path: pathlib.Path,
) -> None:
    """First the old place, then both, then the new one alone; the Agent runs all the time."""
    enrollment, gateway = machine.free_port(), machine.free_port()

    @contextlib.contextmanager
    def at(enrolled_at: str, *, listen: str, gateways: str) -> Iterator[Rig]:
        settings = {
            **QUICK,
            "ENLIST_LISTEN__ADDRESSES": listen,
            "ENLIST_GATEWAY__ADDRESSES": gateways,
        }
        with real_platform.running(
            tmp_path / "platform",
            *("--gateway-port", str(gateway)),
            environment=settings,
            enrollment_port=enrollment,
            addresses=[enrolled_at],
        ) as platform:
            yield Rig(platform=platform, folder=tmp_path)

    with contextlib.ExitStack() as stack:
        with at(LOOPBACK, listen=LOOPBACK, gateways=LOOPBACK) as rig:
            node = rig.join("web-1")
            stack.enter_context(node.running())
            rig.wait_ready(node)
        with at(OTHER, listen=f"{LOOPBACK},{OTHER}", gateways=f"{LOOPBACK},{OTHER}") as rig:
            rig.wait_ready(node)
            rig.wait_follows(node)
        with at(OTHER, listen=OTHER, gateways=OTHER) as rig:
            rig.wait_ready(node)
            assert node.statement()["urls"]["enrollment"] == f"https://{OTHER}:{enrollment}"
            assert f"https://{OTHER}:{gateway}" in node.statement()["urls"]["gateway"]


def _without_a_listener(
    folder: pathlib.Path, *arguments: str, listen: str, public_url: str, gateway: int
) -> contextlib.AbstractContextManager[real_platform.RealPlatform]:
    """A Platform whose API takes machines in, under a name of its own."""
    return real_platform.running(
        folder,
        *("--listen", listen, "--public-url", public_url, "--gateway-port", str(gateway)),
        *arguments,
        environment={**QUICK, "ENLIST_DISPATCH__ENABLED": "true"},
        enrollment_port=None,
    )


def test_another_public_url_is_followed_over_the_session(tmp_path: pathlib.Path) -> None:
    port, gateway = machine.free_port(), machine.free_port()
    listen = f"0.0.0.0:{port}"

    @contextlib.contextmanager
    def under(name: str) -> Iterator[Rig]:
        url = f"https://{name}:{port}"
        with _without_a_listener(
            tmp_path / "platform", listen=listen, public_url=url, gateway=gateway
        ) as platform:
            yield Rig(platform=platform, folder=tmp_path)

    with contextlib.ExitStack() as stack:
        with under(LOOPBACK) as rig:
            node = rig.join("web-1")
            stack.enter_context(node.running())
            rig.wait_ready(node)
        with under("localhost") as rig:
            rig.wait_ready(node)
            rig.wait_follows(node)
            assert node.statement()["urls"]["enrollment"] == f"https://localhost:{port}"


def test_trust_is_followed_over_the_session_where_a_ca_file_proves_a_name_that_is_gone(
    tmp_path: pathlib.Path,
) -> None:
    """Addresses from statements are not adopted in that mode; the keys it says are."""
    authority = certificates.issue(authority=True, common_name="ca")
    own = certificates.issue(issuer=authority).write(tmp_path / "own.pem")
    ca = tmp_path / "ca.pem"
    ca.write_text(authority.pem)
    files = ("--tls-cert-file", str(own), "--tls-key-file", str(own))
    gateway = machine.free_port()

    @contextlib.contextmanager
    def at(port: int) -> Iterator[Rig]:
        with _without_a_listener(
            tmp_path / "platform",
            *files,
            listen=f"{LOOPBACK}:{port}",
            public_url=f"https://{LOOPBACK}:{port}",
            gateway=gateway,
        ) as platform:
            yield Rig(platform=platform, folder=tmp_path)

    with contextlib.ExitStack() as stack:
        with at(machine.free_port()) as rig:
            node = rig.join("web-1", "--platform-ca-file", str(ca))
            assert json.loads((node.folder / "join.json").read_text())["mode"] == "ca-file"
            stack.enter_context(node.running())
            rig.wait_ready(node)
        with at(machine.free_port()) as rig:
            rig.platform.api("POST", "/platform/rotate-trust-key")
            rig.wait_ready(node)
            rig.wait_follows(node)
            assert len(node.statement()["trust_keys"]) == 2


def test_engines_on_one_store_serve_the_next_key_together_and_keep_their_sessions(
    tmp_path: pathlib.Path, postgres_server: postgres.Server
) -> None:
    url = postgres_server.new_database()
    with contextlib.ExitStack() as stack:
        stack.callback(postgres_server.drop_database, url)
        first = stack.enter_context(
            real_platform.running(tmp_path / "one", database_url=url, environment=QUICK)
        )
        (tmp_path / "two").mkdir(mode=0o700)
        shutil.copy2(tmp_path / "one" / "master.key", tmp_path / "two" / "master.key")
        second = stack.enter_context(
            real_platform.running(tmp_path / "two", database_url=url, environment=QUICK)
        )
        rigs = [Rig(platform=one, folder=tmp_path) for one in (first, second)]
        gateways = {one.said["gateway"] for one in (first, second)}
        assert first.said["gateway_pins"] == second.said["gateway_pins"]
        operators.wait_until(
            lambda: set(gateway_port.statement(first)["urls"]["gateway"]) == gateways,
            what="the statement names the gateways of both",
        )
        node = rigs[0].join("web-1")
        agent = stack.enter_context(node.running())
        generation = rigs[0].wait_ready(node)
        rigs[0].rotate(seconds=0)
        (following,) = rigs[0].pins
        operators.wait_until(
            lambda: {rig.served for rig in rigs} == {following}, what="both serve the next key"
        )
        rigs[1].wait_follows(node)
        assert (node.sessions(agent), rigs[1].wait_ready(node)) == (1, generation)
