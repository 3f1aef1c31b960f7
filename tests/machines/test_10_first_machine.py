"""From two bare machines to a ready node that lasts: the line a person pastes, reboots, a cut.

00 the Platform installed by install.sh listens and serves the worker's bundle
01 a wrong pin in the pasted line is refused before anything is installed
02 the pasted line installs the worker, and the token joins it to `ready`
03 what the receipt names is there, units run, nothing in the data directory is root's
04 the token is in no file and no journal of the machine
05 ready again after a reboot, with the same identity
06 ready again after a power cut
07 ready again after the Platform's machine was rebooted
"""

import re
from collections.abc import Callable, Iterator

import pytest

from tests.support.machines import installing, machine, tree

NODE = "first-1"


@pytest.fixture(scope="module")
def worker(new_machine: Callable[..., machine.Placing]) -> Iterator[machine.Machine]:
    """A bare, running machine."""
    with new_machine("first") as booted:
        booted.boot()
        yield booted


def test_00_the_platform_listens_and_serves_the_workers_bundle(
    platform: installing.Platform, worker: machine.Machine
) -> None:
    said = worker.run("curl", "-fsSk", f"{platform.bundle_url}/worker-x86_64")
    sha256, name = said.split()
    assert name.startswith("enlist-worker-")
    worker.run(
        "curl", "-fsSk", "-o", "/root/bundle", f"{platform.bundle_url}/bundles/sha256/{sha256}"
    )
    assert worker.run("sha256sum", "/root/bundle").startswith(sha256)
    worker.run("rm", "/root/bundle")


def test_01_a_wrong_pin_in_the_pasted_line_is_refused(
    platform: installing.Platform, worker: machine.Machine
) -> None:
    line = platform.token("wrong-1").bare_command
    assert "--pinnedpubkey" in line
    wrong = re.sub(r"sha256//[A-Za-z0-9+/=]+", "sha256//" + "A" * 43 + "=", line, count=1)
    before = worker.written()
    done = worker.attempt("bash", "-o", "pipefail", "-c", unattended(wrong, "/dev/null"))
    assert done.code == 90, done  # curl: the pinned key does not match
    assert tree.notable(before, worker.written()) == {}


def test_02_the_pasted_line_installs_and_joins(
    platform: installing.Platform, worker: machine.Machine
) -> None:
    token = platform.token(NODE)
    worker.write("/root/token", token.join_token + "\n", mode=0o600)
    line = unattended(token.bare_command, "/root/token")
    with installing.explained(worker, "enlist-agent.service", "enlist-join.service"):
        worker.run("bash", "-o", "pipefail", "-c", line, seconds=installing.INSTALL_SECONDS)
        platform.wait_state(NODE, "ready")
    worker.run("rm", "/root/token")


def test_03_what_was_made_is_the_accounts_and_runs(worker: machine.Machine) -> None:
    receipt = worker.document("cat", "/opt/enlist/worker/receipt.json")
    assert receipt["role"] == "worker"
    units = receipt["units"]
    assert isinstance(units, list)
    assert "enlist-agent.service" in units
    assert worker.run("systemctl", "is-active", "enlist-agent.service").strip() == "active"
    assert worker.run("find", "/var/lib/enlist/worker", "-not", "-user", "enlist-worker") == ""
    assert (
        worker.run("stat", "-c", "%a %U", "/var/lib/enlist/worker").strip() == "700 enlist-worker"
    )
    assert worker.run("systemctl", "--failed", "--no-legend") == ""


def test_04_the_token_is_in_no_file_and_no_journal(worker: machine.Machine) -> None:
    enrollment = "ent_[0-9a-f]{16}_[0-9a-f]{64}"
    places = "/etc /opt /root /home /var /run /tmp"
    found = worker.attempt(
        "sh", "-c", f"grep -rlaE '{enrollment}|enj_[A-Za-z0-9_-]{{40}}' {places}"
    )
    assert found.out == ""
    assert "enj_" not in worker.journal(lines=5000)


def test_05_ready_again_after_a_reboot(
    platform: installing.Platform, worker: machine.Machine
) -> None:
    before = installing.identity(worker)
    heard = platform.node(NODE)["generation"]
    assert worker.reboot() == "running"
    platform.wait_newer_session(NODE, than=heard)
    assert installing.identity(worker) == before


def test_06_ready_again_after_a_power_cut(
    platform: installing.Platform, worker: machine.Machine
) -> None:
    heard = platform.node(NODE)["generation"]
    worker.cut_power()
    assert worker.boot() == "running"
    platform.wait_newer_session(NODE, than=heard)


@pytest.mark.usefixtures("worker")
def test_07_ready_again_after_the_platforms_machine_was_rebooted(
    platform: installing.Platform,
) -> None:
    heard = platform.node(NODE)["generation"]
    assert platform.machine.reboot() == "running"
    platform.wait_serving()
    platform.wait_newer_session(NODE, than=heard)


def unattended(line: str, token_file: str) -> str:
    """The pasted line with the token from a file in place of the terminal."""
    return f"{line} --join-token-file {token_file} --yes"
