"""The same on Debian 13, with Python 3.13 and its systemd: install, join, reboot, remove."""

from collections.abc import Callable, Iterator

import pytest

from tests.support.machines import installing, machine, tree

NODE = "trixie-1"


@pytest.fixture(scope="module")
def worker(new_machine: Callable[..., machine.Placing]) -> Iterator[machine.Machine]:
    """A bare, running machine with Debian 13."""
    with new_machine("trixie", release="trixie") as booted:
        booted.boot()
        yield booted


@pytest.fixture(scope="module")
def before(worker: machine.Machine) -> dict[str, tree.Entry]:
    """What was written on the machine before Enlist came."""
    return worker.written()


@pytest.mark.usefixtures("before")
def test_00_installed_and_joined(platform: installing.Platform, worker: machine.Machine) -> None:
    with installing.explained(worker, "enlist-agent.service", "enlist-join.service"):
        installing.install(
            *(worker, "worker", "--join-token-file", "-"),
            stdin=platform.token(NODE).join_token,
        )
        platform.wait_state(NODE, "ready")


def test_01_ready_again_after_a_reboot(
    platform: installing.Platform, worker: machine.Machine
) -> None:
    heard = platform.node(NODE)["generation"]
    assert worker.reboot() == "running"
    platform.wait_newer_session(NODE, than=heard)


@pytest.mark.long
def test_02_a_platform_beside_the_worker(
    worker: machine.Machine, releases: installing.Releases
) -> None:
    installing.install(worker, "platform", release=releases.ensure("trixie"))
    worker.until("enlist", "nodes", "list")


def test_03_both_removed_and_nothing_is_left(
    worker: machine.Machine, before: dict[str, tree.Entry]
) -> None:
    installing.uninstall(worker, "platform")
    installing.uninstall(worker, "worker")
    assert tree.notable(before, worker.written()) == {}
