"""Updates: by the installer, from the Platform, and one that does not live.

00 installed and joined
01 the Platform updates the node to a newer release; the work of its identity goes on
02 the installer run again with the same release changes nothing
03 a release whose Agent crashes at its start is gone back from within 60 s, identity untouched
04 the same by the Platform's order: the operation fails, the node is ready on what it had
05 `enlist worker update` as root takes what the Platform serves
"""

import time
from collections.abc import Callable, Iterator

import pytest

from tests.support.machines import installing, machine

NODE = "update-1"
ROLL_BACK_SECONDS = 60.0


@pytest.fixture(scope="module")
def worker(new_machine: Callable[..., machine.Placing]) -> Iterator[machine.Machine]:
    """A bare, running machine."""
    with new_machine("update") as booted:
        booted.boot()
        yield booted


def test_00_installed_and_joined(
    platform: installing.Platform, worker: machine.Machine, releases: installing.Releases
) -> None:
    installing.install(
        *(worker, "worker", "--join-token-file", "-"),
        stdin=platform.token(NODE).join_token,
        release=releases.ensure("old"),
    )
    platform.wait_node(NODE, state="ready", version=installing.OLD_VERSION)
    platform.wait_heartbeat(NODE)


def test_01_the_platform_updates_the_node(
    platform: installing.Platform, worker: machine.Machine, releases: installing.Releases
) -> None:
    before = installing.identity(worker)
    platform.add_bundle(releases.ensure("next"))
    with installing.explained(worker, "enlist-helper.service", "enlist-agent.service"):
        platform.enlist(
            *("nodes", "update", NODE, "--version", installing.NEXT_VERSION, "--wait"), seconds=180
        )
        platform.wait_node(NODE, state="ready", version=installing.NEXT_VERSION)
    assert installing.identity(worker) == before
    assert installing.version(worker) == installing.NEXT_VERSION


def test_02_the_same_release_again_changes_nothing(
    worker: machine.Machine, releases: installing.Releases
) -> None:
    before = installing.agent_pid(worker), installing.release(worker)
    # While the root helper still watches the release that it has just put in use, the installer
    # says so and ends with 75: again later.
    again = installing.install_command("worker", release=releases.ensure("next"))
    worker.until(*again, seconds=installing.INSTALL_SECONDS)
    assert (installing.agent_pid(worker), installing.release(worker)) == before


def test_03_a_release_that_does_not_live_is_gone_back_from(
    platform: installing.Platform, worker: machine.Machine, releases: installing.Releases
) -> None:
    before = installing.identity(worker), installing.release(worker)
    heard = platform.node(NODE)["generation"]
    broken = releases.ensure("broken")
    started = time.monotonic()
    done = installing.install(worker, "worker", release=broken, expect=3)
    assert time.monotonic() - started < ROLL_BACK_SECONDS
    assert installing.BROKEN_VERSION in done.err
    assert (installing.identity(worker), installing.release(worker)) == before
    platform.wait_newer_session(NODE, than=heard)


def test_04_an_ordered_release_that_does_not_live_is_gone_back_from(
    platform: installing.Platform, worker: machine.Machine, releases: installing.Releases
) -> None:
    before = installing.identity(worker), installing.release(worker)
    platform.add_bundle(releases.ensure("broken"))
    done = platform.machine.attempt(
        *("enlist", "nodes", "update", NODE, "--version", installing.BROKEN_VERSION, "--wait"),
        seconds=240,
    )
    assert done.code == 3, done
    platform.wait_node(NODE, state="ready", version=installing.NEXT_VERSION)
    assert (installing.identity(worker), installing.release(worker)) == before
    shown = platform.enlist("operations", "list", "-o", "json")
    assert "failed" in shown


def test_05_worker_update_takes_the_latest_that_the_platform_serves(
    platform: installing.Platform, worker: machine.Machine
) -> None:
    worker.run("enlist", "worker", "update", "--yes", seconds=120)
    platform.wait_node(NODE, state="ready", version=platform.version)
    assert installing.version(worker) == platform.version
