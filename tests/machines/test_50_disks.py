"""Disks that cannot be written: full, or read-only but for the data directory.

00 on a full disk the installer says so, and no half of it is in use
01 with room again the same command finishes, and the token is good
02 a full disk under a joined machine: the Agent lives on, and a reboot with it
03 a read-only root with a writable data directory: the Agent is ready
"""

from collections.abc import Callable, Iterator

import pytest

from tests.support.machines import installing, machine

NODE = "disk-1"
FILL = "dd if=/dev/zero of=/ballast bs=64k 2>/dev/null; dd if=/dev/zero bs=1 >>/ballast 2>/dev/null"


@pytest.fixture(scope="module")
def worker(new_machine: Callable[..., machine.Placing]) -> Iterator[machine.Machine]:
    """A machine with a small disk."""
    with new_machine("disk", megabytes=256) as booted:
        booted.boot()
        yield booted


def test_00_a_full_disk_is_named(worker: machine.Machine) -> None:
    worker.attempt("sh", "-c", FILL)
    done = worker.attempt(*installing.install_command("worker"), seconds=installing.INSTALL_SECONDS)
    assert done.code not in {0, 1}, done
    assert "space" in done.err.lower()
    assert not worker.has("/opt/enlist/worker/current")


def test_01_with_room_again_the_same_command_finishes(
    platform: installing.Platform, worker: machine.Machine
) -> None:
    worker.run("rm", "/ballast")
    installing.install(
        *(worker, "worker", "--join-token-file", "-"), stdin=platform.token(NODE).join_token
    )
    platform.wait_state(NODE, "ready")


def test_02_a_full_disk_under_a_joined_machine(
    platform: installing.Platform, worker: machine.Machine
) -> None:
    before = installing.identity(worker)
    heard = platform.node(NODE)["generation"]
    worker.attempt("sh", "-c", FILL)
    worker.cut_power()
    worker.boot()
    # With the disk full no generation can be stored, so that a session may not be opened; but the
    # Agent is there, its identity untouched, and ready as soon as there is room.
    worker.run("rm", "/ballast")
    with installing.explained(worker, "enlist-agent.service"):
        platform.wait_newer_session(NODE, than=heard, seconds=90)
    assert installing.identity(worker) == before


def test_03_a_read_only_root_with_a_writable_data_directory(
    platform: installing.Platform, worker: machine.Machine
) -> None:
    heard = platform.node(NODE)["generation"]
    worker.power_off()
    worker.write("/etc/cloud/cloud-init.disabled", "")
    # The data directory is a disk of its own; a folder of the root's would be read-only with it.
    data = worker.folder / "data"
    machine.copy_owned(worker.root / "var/lib/enlist/worker", data)
    worker.start("--read-only", f"--bind={data}:/var/lib/enlist/worker", "--tmpfs=/var/tmp")
    with installing.explained(worker, "enlist-agent.service"):
        platform.wait_newer_session(NODE, than=heard, seconds=90)
    assert worker.attempt("touch", "/etc/proof").code != 0
