"""The root helper on a real machine: whom it serves, and an update with the power cut inside it.

00 installed and joined; the helper knows its Platform and serves root and the Agent's account alone
01 the power is cut while the release changes: the next boot's helper, the old release's, finishes
02 the helper ends by itself and the next request meets the present release's
"""

import json
from collections.abc import Callable, Iterator

import pytest

from tests.support.machines import installing, machine

NODE = "cut-off-1"
HELPER = "/var/lib/enlist/helper"
ASK = """
import socket
asking = socket.socket(socket.AF_UNIX)
asking.settimeout(60)
asking.connect("/run/enlist-helper.sock")
asking.sendall(b'{"verb":"status"}\\n')
print(asking.recv(65536).decode())
"""


@pytest.fixture(scope="module")
def worker(new_machine: Callable[..., machine.Placing]) -> Iterator[machine.Machine]:
    """A bare, running machine."""
    with new_machine("cutoff") as booted:
        booted.boot()
        yield booted


def status(worker: machine.Machine, *, become: tuple[str, ...] = ()) -> dict[str, object]:
    return worker.document(*become, "python3", "/srv/ask.py")


def test_00_the_helper_serves_root_and_the_agents_account_alone(
    platform: installing.Platform, worker: machine.Machine, releases: installing.Releases
) -> None:
    installing.install(
        *(worker, "worker", "--join-token-file", "-"),
        stdin=platform.token(NODE).join_token,
        release=releases.ensure("old"),
    )
    platform.wait_node(NODE, state="ready", version=installing.OLD_VERSION)
    platform.wait_heartbeat(NODE)
    worker.write("/srv/ask.py", ASK)
    release = worker.run("readlink", "/opt/enlist/worker/current").strip().rpartition("/")[2]
    for become in ((), ("runuser", "-u", "enlist-worker", "--")):
        said = status(worker, become=become)
        assert said["release"] == release
        # The serial is higher where a suite before this one has changed a key of the Platform's.
        trust = said["trust"]
        assert isinstance(trust, list)
        assert trust >= [1, 1]
    refused = worker.attempt("runuser", "-u", "nobody", "--", "python3", "/srv/ask.py")
    assert "Permission denied" in refused.err


def test_01_the_next_boot_finishes_what_a_power_cut_left(
    platform: installing.Platform, worker: machine.Machine, releases: installing.Releases
) -> None:
    before = installing.identity(worker)
    platform.add_bundle(releases.ensure("next"))
    platform.enlist("nodes", "update", NODE, "--version", installing.NEXT_VERSION)
    worker.until("grep", "-q", '"begun"', f"{HELPER}/orders.json")
    worker.cut_power()
    worker.boot()
    with installing.explained(worker, "enlist-helper.service", "enlist-agent.service"):
        worker.until("grep", "-q", '"ended"', f"{HELPER}/orders.json", seconds=120)
        platform.wait_node(NODE, state="ready", version=installing.NEXT_VERSION)
    assert json.loads(worker.read(f"{HELPER}/last.json"))["end"] == "changed"
    assert installing.identity(worker) == before
    assert installing.version(worker) == installing.NEXT_VERSION
    assert "releases/" not in worker.attempt("readlink", f"{HELPER}/finisher").out


def test_02_the_next_request_meets_the_present_release(worker: machine.Machine) -> None:
    worker.until("sh", "-c", "! systemctl is-active --quiet enlist-helper", seconds=90)
    said = status(worker)
    assert str(said["release"]).startswith(installing.NEXT_VERSION)
    pid = worker.run("systemctl", "show", "-P", "MainPID", "enlist-helper.service").strip()
    program = worker.run("readlink", "-f", f"/proc/{pid}/root/opt/enlist/worker/current").strip()
    shown = worker.run("cat", f"/proc/{pid}/cmdline")
    assert program.rpartition("/")[2] in shown
