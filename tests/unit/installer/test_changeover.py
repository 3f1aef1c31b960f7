"""A change of release among recorders: when it stands, when it is taken back, in which order."""

import dataclasses
import pathlib

import pytest

from installer import changeover, programs, switch
from installer import layout as layout_kit

OLD, NEW = "0.1.0-000000000000", "0.2.0-000000000000"
AGENT = "enlist-agent.service"


class Time:
    """Seconds that a wait moves."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def wait(self, seconds: float) -> None:
        self.seconds += seconds


@dataclasses.dataclass(slots=True)
class Manager:
    """A service manager that writes down what it was asked; each release lives as told."""

    layout: layout_kit.Layout
    time: Time
    lives: dict[str, list[tuple[float, str, str]]]  # release: from when after a start, state, pid
    running: bool = True
    refuses: str = ""
    said: list[str] = dataclasses.field(default_factory=list)
    began: float = 0.0
    started: str = ""

    def in_use(self, names: tuple[str, ...]) -> tuple[str, ...]:
        return names if self.running else ()

    def restart(self, name: str) -> None:
        release = switch.current(self.layout) or ""
        self.said.append(f"restart {name} of {release[:5]}")
        if release == self.refuses:
            raise programs.ProgramFailed("systemctl: Unit has a bad setting.")
        self.began, self.started = self.time.monotonic(), release

    def state(self, name: str) -> tuple[str, str]:
        del name
        since = self.time.monotonic() - self.began
        state = ("activating", "")
        for after, word, process in self.lives[self.started]:
            if since >= after:
                state = (word, process)
        return state

    def put_units(self, layout: layout_kit.Layout, release_id: str) -> None:
        del layout
        self.said.append(f"units of {release_id[:5]}")

    def why(self, name: str) -> str:
        del name
        return "It said: no such module"


@pytest.fixture
def layout(tmp_path: pathlib.Path) -> layout_kit.Layout:
    places = layout_kit.system(layout_kit.Role.WORKER, prefix=tmp_path)
    for release in (OLD, NEW):
        places.release(release).mkdir(parents=True)
    switch.to_release(places, OLD)
    return places


WELL = [(1.0, "active", "10")]
ENDS = {
    "a build that lives": (WELL, changeover.End.CHANGED, ""),
    "a build that dies at once": ([(0.5, "failed", "")], changeover.End.WENT_BACK, "at its start"),
    "a build that ends without a word": (
        [(0.5, "inactive", "")], changeover.End.WENT_BACK, "at its start",
    ),
    "a build that is never ready": ([], changeover.End.WENT_BACK, "not ready after 40 s"),
    "a build that dies after three seconds": (
        [*WELL, (3.0, "failed", "")], changeover.End.WENT_BACK, "soon after",
    ),
    "a build that was started again meanwhile": (
        [*WELL, (4.0, "active", "11")], changeover.End.WENT_BACK, "soon after",
    ),
    "a build that dies a minute later is no matter of the change": (
        [*WELL, (60.0, "failed", "")], changeover.End.CHANGED, "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", ENDS)
def test_the_end_of(what: str, layout: layout_kit.Layout) -> None:
    lives, end, reason = ENDS[what]
    time = Time()
    manager = Manager(layout, time, {OLD: WELL, NEW: lives})
    outcome = changeover.change(layout, to=NEW, services=manager, waits=time)
    assert outcome.end is end
    assert reason in outcome.reason
    assert time.seconds < 60  # gone back within a minute, whatever was wrong
    forth = ["units of 0.2.0", f"restart {AGENT} of 0.2.0"]
    back = ["units of 0.1.0", f"restart {AGENT} of 0.1.0"]
    if end is changeover.End.CHANGED:
        assert manager.said == forth
        assert (switch.current(layout), switch.previous(layout)) == (NEW, OLD)
    else:
        assert manager.said == [*forth, *back]
        assert (switch.current(layout), switch.previous(layout)) == (OLD, None)
        assert outcome.release == OLD


def test_a_death_is_told_with_what_was_said(layout: layout_kit.Layout) -> None:
    time = Time()
    manager = Manager(layout, time, {OLD: WELL, NEW: [(0.0, "failed", "")]})
    outcome = changeover.change(layout, to=NEW, services=manager, waits=time)
    assert "no such module" in outcome.reason


def test_units_that_cannot_be_started_are_taken_back(layout: layout_kit.Layout) -> None:
    time = Time()
    manager = Manager(layout, time, {OLD: WELL, NEW: WELL}, refuses=NEW)
    outcome = changeover.change(layout, to=NEW, services=manager, waits=time)
    assert outcome.end is changeover.End.WENT_BACK
    assert "bad setting" in outcome.reason


def test_when_the_old_one_does_not_live_either_both_reasons_are_told(
    layout: layout_kit.Layout,
) -> None:
    time = Time()
    dead = [(0.0, "failed", "")]
    manager = Manager(layout, time, {OLD: dead, NEW: dead})
    outcome = changeover.change(layout, to=NEW, services=manager, waits=time)
    assert outcome.end is changeover.End.STUCK
    assert outcome.release == OLD
    assert "Gone back:" in outcome.reason


def test_nothing_that_stands_still_is_started(layout: layout_kit.Layout) -> None:
    time = Time()
    manager = Manager(layout, time, {OLD: WELL, NEW: WELL}, running=False)
    outcome = changeover.change(layout, to=NEW, services=manager, waits=time)
    assert outcome.end is changeover.End.CHANGED
    assert manager.said == ["units of 0.2.0"]


@pytest.mark.parametrize(("lives", "end"), [(WELL, "changed"), ([], "went-back")])
def test_an_interrupted_change_is_watched_once_more(
    lives: list[tuple[float, str, str]], end: str, layout: layout_kit.Layout
) -> None:
    switch.to_release(layout, NEW)  # and killed there
    time = Time()
    manager = Manager(layout, time, {OLD: WELL, NEW: lives})
    outcome = changeover.change(layout, to=NEW, services=manager, waits=time)
    assert outcome.end == end
    assert switch.current(layout) == (NEW if end == "changed" else OLD)


def test_going_back_by_hand_is_a_change_to_the_previous(layout: layout_kit.Layout) -> None:
    switch.to_release(layout, NEW)
    time = Time()
    manager = Manager(layout, time, {OLD: WELL, NEW: WELL})
    former = switch.previous(layout)
    assert former == OLD
    outcome = changeover.change(layout, to=former, services=manager, waits=time)
    assert outcome.end is changeover.End.CHANGED
    assert (switch.current(layout), switch.previous(layout)) == (OLD, NEW)


def test_only_the_releases_in_use_and_before_are_kept(layout: layout_kit.Layout) -> None:
    for name in ("0.0.1-000000000000", ".making-0.3.0", ".old-0.1.0"):
        layout.release(name).mkdir()
    switch.to_release(layout, NEW)
    switch.remove_others(layout)
    assert sorted(path.name for path in layout.releases.iterdir()) == [OLD, NEW]
