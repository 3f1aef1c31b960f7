"""F14, F16: whatever stands in the Platform's place, a real Agent keeps its id, pin and trust.

Elsewhere an Agent whose server was away reset its own id, or asked again in milliseconds for ever.
What the refresh does with each answer is walked in test_worker_trust.py against a Platform in
memory; here the Agent is the real process, before and after.
"""

import contextlib
import dataclasses
import functools
import http.server
import pathlib
import ssl
import threading
from collections.abc import Iterator, Mapping

import pytest

from tests.support import certificates, machine, operators, real_platform, worker_command

pytestmark = pytest.mark.timeout(180)

QUICK = {"ENLIST_PROBE__INTERVAL_SECONDS": "1"}
PAGE = b"<!doctype html><title>Welcome to nginx!</title>"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """A Platform's folder and port, and a machine that has joined it."""

    data_dir: pathlib.Path
    port: int
    worker: machine.Machine

    @contextlib.contextmanager
    def platform(self) -> Iterator[real_platform.RealPlatform]:
        with real_platform.running(
            self.data_dir, environment=QUICK, enrollment_port=self.port
        ) as platform:
            yield platform

    def kept(self) -> Mapping[str, bytes]:
        """All that the machine keeps."""
        return worker_command.contents(self.worker.data_dir)


@pytest.fixture
def home(tmp_path: pathlib.Path) -> Home:
    made = Home(
        data_dir=tmp_path / "platform",
        port=machine.free_port(),
        worker=machine.in_folder(tmp_path),
    )
    with made.platform() as platform:
        made.worker.join(machine.issue(platform, "web-1"))
        with made.worker.agent():
            machine.wait_for_state(platform, "web-1", "ready")
    return made


@contextlib.contextmanager
def _in_its_place(
    port: int, *, folder: pathlib.Path, status: int, body: bytes
) -> Iterator[list[str]]:
    """Another https server on the Platform's port; gives what it is asked."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.path)
            self.rfile.read(int(self.headers.get("content-length", "0")))
            self.send_response(status)
            self.send_header("content-type", "text/html")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
            """Says nothing."""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.issue().write(folder / f"stranger-{status}.pem"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        serving = threading.Thread(target=server.serve_forever, daemon=True)
        serving.start()
        try:
            yield asked
        finally:
            server.shutdown()
            serving.join(10)


def test_an_agent_keeps_all_through_404_500_and_html_and_is_ready_when_the_platform_is_back(
    home: Home, tmp_path: pathlib.Path
) -> None:
    before = home.kept()
    for status, body in ((404, b""), (500, PAGE), (200, PAGE)):
        with (
            _in_its_place(home.port, folder=tmp_path, status=status, body=body) as asked,
            home.worker.agent() as agent,
        ):
            operators.wait_until(functools.partial(bool, asked), what=f"it met the {status}")
            assert agent.process.poll() is None
            assert set(asked) == {"/api/v1/trust"}
            assert agent.stop() == 0
        assert home.kept() == before
    with home.platform() as platform, home.worker.agent():
        shown = machine.wait_for_state(platform, "web-1", "ready")
    assert shown["node_id"] == "web-1"


def test_an_agent_outlives_its_platform_and_is_found_again(home: Home) -> None:
    before = home.kept()
    with home.worker.agent() as agent:
        operators.wait_until(
            lambda: "trust" in agent.log.read_text().lower(), what="it found nobody"
        )
        assert agent.process.poll() is None
        assert home.kept() == before
        with home.platform() as platform:
            pin = machine.wait_for_state(platform, "web-1", "ready")["pin"]
        assert agent.process.poll() is None
        with home.platform() as platform:
            assert machine.wait_for_state(platform, "web-1", "ready")["pin"] == pin
            assert agent.process.poll() is None


def test_removing_one_node_disturbs_no_other(home: Home, tmp_path: pathlib.Path) -> None:
    """F14: elsewhere the end of one key made all others authenticate anew."""
    other = machine.in_folder(tmp_path, name="other")
    with home.platform() as platform:
        other.join(machine.issue(platform, "web-2"))
        with home.worker.agent() as agent, other.agent():
            machine.wait_for_state(platform, "web-1", "ready")
            machine.wait_for_state(platform, "web-2", "ready")
            kept = home.kept()
            platform.enlist("nodes", "remove", "web-2", "--yes", "--force")
            before = _times_unreachable(platform)
            machine.wait_for_state(platform, "web-2", "removed")
            shown = machine.node(platform, "web-1")
            assert shown["state"] == "ready"
            assert _times_unreachable(platform) == before
            assert agent.process.poll() is None
        assert home.kept() == kept


def _times_unreachable(platform: real_platform.RealPlatform) -> int:
    with operators.local(platform) as client:
        told = client.get("/events", params={"follow": "false"}).text
    return told.count("node.unreachable")
