"""First boot by cloud-init, undisturbed and with the power cut in the middle of it.

00 a machine whose user data holds the pasted line is a ready node at the end of its first boot
01 cut at 1, 3 and 10 s of the first boot, each machine is a ready node after the next (long: 30 s)
02 after it, user data holds a spent token only, readable by root alone
"""

import contextlib
import time
from collections.abc import Callable, Iterator

import pytest

from tests.support.machines import first_boot, installing, machine

NODE = "boot-1"


@pytest.fixture(scope="module")
def worker(
    platform: installing.Platform, new_machine: Callable[..., machine.Placing]
) -> Iterator[machine.Machine]:
    """A machine that has a seed and was never switched on."""
    with new_machine("boot") as bare:
        bare.seed(first_boot.user_data(platform.token(NODE)))
        yield bare


def test_00_a_first_boot_ends_as_a_ready_node(
    platform: installing.Platform, worker: machine.Machine
) -> None:
    with installing.explained(worker, first_boot.UNIT, "enlist-agent.service"):
        worker.start()
        platform.wait_state(NODE, "ready")
        assert worker.wait_booted() == "running"
    assert worker.run("cloud-init", "status").strip() == "status: done"


@pytest.mark.parametrize(
    "cuts", [(1, 3, 10), pytest.param((30,), marks=pytest.mark.long)], ids=["1-3-10", "30"]
)
def test_01_a_cut_first_boot_is_finished_by_the_next(
    platform: installing.Platform,
    new_machine: Callable[..., machine.Placing],
    cuts: tuple[int, ...],
) -> None:
    with contextlib.ExitStack() as running:
        cut = {seconds: running.enter_context(new_machine(f"cut{seconds}")) for seconds in cuts}
        for seconds, bare in cut.items():
            bare.seed(first_boot.user_data(platform.token(f"cut-{seconds}")))
        started = time.monotonic()
        for bare in cut.values():
            bare.start()
        for seconds, bare in cut.items():
            bare.let_run(seconds, since=started)
            bare.cut_power()
        for bare in cut.values():
            bare.start()
        for seconds, bare in cut.items():
            with installing.explained(bare, first_boot.UNIT, "enlist-join", "enlist-agent"):
                platform.wait_state(f"cut-{seconds}", "ready", seconds=90)


def test_02_user_data_holds_nothing_of_worth_afterwards(worker: machine.Machine) -> None:
    holding = worker.run("sh", "-c", "grep -rlas 'enj_' /var/lib/cloud /run/cloud-init; true")
    for path in holding.splitlines():
        assert worker.run("stat", "-L", "-c", "%a", path).strip() in {"600", "400"}, path
    assert worker.attempt("sh", "-c", "grep -la enj_ /var/log/cloud-init*").out == ""
