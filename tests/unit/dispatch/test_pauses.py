"""Pauses that grow, on a clock moved by hand."""

import datetime

from platform_server.dispatch import pauses
from runtime_kit import clock as clock_kit

START = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)


def lengths(count: int) -> list[float]:
    """How long each of so many pauses in a row lasts, in whole seconds."""
    clock = clock_kit.ManualClock(START)
    kept = pauses.Pauses[str](clock)
    found = []
    for _ in range(count):
        kept.begin("a")
        seconds = 0.0
        while kept.lasts("a"):
            clock.advance(1)
            seconds += 1
        found.append(seconds)
    return found


def test_each_pause_is_twice_as_long_up_to_a_minute() -> None:
    assert lengths(8) == [1, 2, 4, 8, 16, 32, 60, 60]


def test_what_was_forgotten_is_due_at_once_and_begins_anew() -> None:
    clock = clock_kit.ManualClock(START)
    kept = pauses.Pauses[str](clock)
    for _ in range(4):
        kept.begin("a")
    kept.begin("b")
    kept.forget("a")
    assert (kept.lasts("a"), kept.lasts("b")) == (False, True)
    kept.begin("a")
    clock.advance(1)
    assert not kept.lasts("a")


def test_only_what_is_still_wanted_is_kept() -> None:
    kept = pauses.Pauses[str](clock_kit.ManualClock(START))
    for key in ("a", "b", "c"):
        kept.begin(key)
    kept.keep({"b"})
    assert [key for key in ("a", "b", "c") if kept.lasts(key)] == ["b"]


def test_what_nobody_came_back_for_is_forgotten_and_begins_anew() -> None:
    clock = clock_kit.ManualClock(START)
    kept = pauses.Pauses[str](clock)
    for _ in range(5):
        kept.begin("a")
    clock.advance(16 + 61)
    kept.forget_old()
    kept.begin("a")
    clock.advance(1)
    assert not kept.lasts("a")
