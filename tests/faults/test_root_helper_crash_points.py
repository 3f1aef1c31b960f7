"""`kill -9` of the root helper at every named point of an order: the next start goes on.

Up to `begun` nothing has changed, and the very same order goes through; from then on nobody has to
give it again.
"""

import contextlib
import os
import pathlib
import signal
import subprocess

import pytest

from installer import changeover, switch
from root_helper import changing, last_order, seed
from runtime_kit import crash_points
from tests.support import operators, root_helpers, tiny_releases
from wire_protocol import helper_protocol as helper

BEFORE_BEGUN = {changing.TAKEN, changing.STAGED}
AFTER_BEGUN = {
    changing.BEGUN,
    changing.FINISHER_SET,
    switch.PREVIOUS_SET,
    switch.SWITCHED,
    changeover.RESTARTED,
    changing.CHANGED,
    changing.OUTCOME_WRITTEN,
    changing.ENDED,
}
NEWER = tiny_releases.make("1.2.0")
pytestmark = pytest.mark.timeout(180)


def test_the_points_cover_every_step() -> None:
    own = {name for name in crash_points.declared() if name.startswith("helper.")}
    assert own - {seed.SEEDED} == {
        name for name in BEFORE_BEGUN | AFTER_BEGUN if name.startswith("helper.")
    }


@pytest.fixture
def machine(tmp_path: pathlib.Path) -> root_helpers.Machine:
    return root_helpers.installed(tmp_path, "1.0.0", "1.1.0")


def run(machine: root_helpers.Machine, *, crash_at: str | None, gives: bool) -> int:
    """Starts the helper, gives it the order or not, and waits for its end; gives its exit code."""
    machine.socket.unlink(missing_ok=True)
    process = root_helpers.started(machine, crash_at=crash_at)
    try:
        if gives:
            operators.wait_until(machine.socket.is_socket, what="the helper listens")
            file = tiny_releases.open_memory(NEWER.data)
            signed = root_helpers.update(NEWER, sequence=1)
            with contextlib.suppress(OSError):  # it is killed while it is asked
                root_helpers.hand(machine, helper.Verb.UPDATE, signed, file)
            os.close(file)
        process.communicate(timeout=root_helpers.SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return process.returncode


@pytest.mark.parametrize("point", sorted(BEFORE_BEGUN))
def test_killed_before_it_began_the_next_start_changes_nothing_and_the_order_goes_through_again(
    machine: root_helpers.Machine, point: str
) -> None:
    before = machine.current
    assert run(machine, crash_at=point, gives=True) == -signal.SIGKILL
    assert run(machine, crash_at=None, gives=False) == 0
    assert machine.current == before
    assert machine.restarts == []


@pytest.mark.parametrize("point", sorted(AFTER_BEGUN))
@pytest.mark.parametrize("broken", [False, True], ids=["sound", "broken"])
def test_killed_later_the_next_start_finishes(
    machine: root_helpers.Machine, point: str, *, broken: bool
) -> None:
    before = machine.current
    if broken:
        machine.breaks(NEWER.release.id)
    assert run(machine, crash_at=point, gives=True) == -signal.SIGKILL
    assert machine.current is not None
    assert run(machine, crash_at=None, gives=False) == 0

    assert machine.current == (before if broken else NEWER.release.id)
    assert machine.outcome()["end"] == ("went-back" if broken else "changed")
    ended = last_order.read(machine.places)
    assert ended is not None
    assert (ended.number, ended.stage) == ((1, 1), last_order.Stage.ENDED)
    assert not machine.places.finisher.is_symlink()
    assert list(machine.places.folder.glob(".tmp-*")) == []


def test_the_same_order_goes_through_after_a_kill_before_it_began(
    machine: root_helpers.Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    signed = root_helpers.update(NEWER, sequence=1)
    monkeypatch.setattr(root_helpers, "update", lambda *_args, **_more: signed)
    assert run(machine, crash_at=changing.STAGED, gives=True) == -signal.SIGKILL
    assert run(machine, crash_at=None, gives=True) == 0
    assert machine.current == NEWER.release.id


def test_a_release_that_takes_the_machine_down_each_time_is_given_up(
    machine: root_helpers.Machine,
) -> None:
    before = machine.current
    assert run(machine, crash_at=changeover.RESTARTED, gives=True) == -signal.SIGKILL
    for _ in range(last_order.MOST_TRIES - 1):
        assert run(machine, crash_at=changeover.RESTARTED, gives=False) == -signal.SIGKILL
        assert machine.current == NEWER.release.id
    assert run(machine, crash_at=None, gives=False) == 0
    assert machine.current == before
    assert machine.outcome()["end"] == "went-back"
    assert "cut off 3 times" in machine.outcome()["reason"]
