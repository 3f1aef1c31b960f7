"""Removal leaves nothing: the lists of files before and after are the same but for a written list.

00 installed and joined on a machine whose files were listed before
01 removed: the Platform is told, and the lists are the same
02 removed again: nothing to do, exit 0
03 removed with pieces missing and the Platform unreachable
04 a Platform removed as well
"""

from collections.abc import Callable, Iterator

import pytest

from tests.support.machines import installing, machine, tree

NODE = "removal-1"


@pytest.fixture(scope="module")
def worker(new_machine: Callable[..., machine.Placing]) -> Iterator[machine.Machine]:
    """A bare, running machine."""
    with new_machine("removal") as booted:
        booted.boot()
        yield booted


@pytest.fixture(scope="module")
def before(worker: machine.Machine) -> dict[str, tree.Entry]:
    """What was written on the machine before Enlist came."""
    return worker.written()


def test_00_installed_and_joined(
    platform: installing.Platform, worker: machine.Machine, before: dict[str, tree.Entry]
) -> None:
    installing.install(
        *(worker, "worker", "--join-token-file", "-"), stdin=platform.token(NODE).join_token
    )
    platform.wait_state(NODE, "ready")
    assert tree.notable(before, worker.written())


def test_01_removed_the_platform_is_told_and_nothing_is_left(
    platform: installing.Platform, worker: machine.Machine, before: dict[str, tree.Entry]
) -> None:
    installing.uninstall(worker, "worker")
    assert tree.notable(before, worker.written()) == {}
    assert worker.run("systemctl", "list-units", "--all", "--no-legend", "enlist-*") == ""
    assert worker.run("systemctl", "--failed", "--no-legend") == ""
    platform.wait_gone(NODE)


def test_02_removed_again_there_is_nothing_to_do(
    worker: machine.Machine, before: dict[str, tree.Entry]
) -> None:
    installing.uninstall(worker, "worker")
    assert tree.notable(before, worker.written()) == {}


def test_03_removed_with_pieces_missing_and_the_platform_away(
    platform: installing.Platform, worker: machine.Machine, before: dict[str, tree.Entry]
) -> None:
    installing.install(
        *(worker, "worker", "--join-token-file", "-"), stdin=platform.token("removal-2").join_token
    )
    platform.wait_state("removal-2", "ready")
    worker.shell(
        "rm -r /opt/enlist/worker/current /etc/systemd/system/enlist-helper.* /usr/local/bin/enlist"
    )
    worker.unplug()
    installing.uninstall(worker, "worker")
    worker.plug()
    assert tree.notable(before, worker.written()) == {}


def test_04_a_platform_is_removed_as_well(
    worker: machine.Machine, before: dict[str, tree.Entry]
) -> None:
    installing.install(worker, "platform")
    worker.until("enlist", "nodes", "list")
    installing.uninstall(worker, "platform")
    assert tree.notable(before, worker.written()) == {}
    assert worker.run("systemctl", "list-units", "--all", "--no-legend", "enlist-*") == ""
