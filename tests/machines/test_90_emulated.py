"""The same first boot on a machine with a kernel of its own, under QEMU with a NoCloud CD. Long.

00 its first boot, by cloud-init, ends as a ready node
01 with the power cut, it is ready again after the next
"""

from collections.abc import Callable, Iterator

import pytest

from tests.support.machines import emulated, first_boot, installing, machine

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]
NODE = "emulated-1"
BOOT_SECONDS = 900.0


@pytest.fixture(scope="module")
def worker(
    platform: installing.Platform, new_machine: Callable[..., machine.Placing]
) -> Iterator[emulated.Emulated]:
    """A machine with a seed that was never switched on."""
    reason = emulated.why_not()
    if reason is not None:
        pytest.skip(reason)
    user_data = first_boot.user_data(platform.token(NODE, "--ttl-minutes", "120"))
    with (
        new_machine("emulated", kernel=True) as origin,
        emulated.made_from(origin, user_data=user_data) as made,
    ):
        yield made


def test_00_a_first_boot_ends_as_a_ready_node(
    platform: installing.Platform, worker: emulated.Emulated
) -> None:
    worker.start()
    try:
        platform.wait_state(NODE, "ready", seconds=BOOT_SECONDS)
    except TimeoutError as error:
        error.add_note(worker.console_end())
        raise


def test_01_ready_again_after_a_power_cut(
    platform: installing.Platform, worker: emulated.Emulated
) -> None:
    heard = platform.node(NODE)["generation"]
    worker.cut_power()
    worker.start()
    try:
        platform.wait_newer_session(NODE, than=heard, seconds=BOOT_SECONDS)
    except TimeoutError as error:
        error.add_note(worker.console_end())
        raise
