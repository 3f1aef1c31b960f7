"""Clock, secret, retry and crash points."""

import asyncio
import datetime
import logging
import pickle
import random

import pytest

from runtime_kit import clock, crash_points, retry, secret

START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


async def test_a_manual_clock_wakes_sleepers_in_their_order() -> None:
    hands = clock.ManualClock(START)
    woken: list[str] = []

    async def sleeper(name: str, seconds: float) -> None:
        await hands.sleep(seconds)
        woken.append(name)

    async with asyncio.TaskGroup() as group:
        group.create_task(sleeper("late", 3600))
        group.create_task(sleeper("early", 60))
        await asyncio.sleep(0)
        hands.advance(3600)
    assert woken == ["early", "late"]
    assert hands.now() == START + datetime.timedelta(hours=1)


def test_a_jump_moves_wall_time_alone() -> None:
    hands = clock.ManualClock(START)
    hands.jump(-3600)
    assert (hands.monotonic(), hands.now()) == (0.0, START - datetime.timedelta(hours=1))


def test_a_clock_does_not_start_without_a_zone() -> None:
    with pytest.raises(ValueError, match="time zone"):
        clock.ManualClock(datetime.datetime(2026, 1, 1))  # noqa: DTZ001 - the fault under test


def test_stored_times_read_back_to_the_microsecond() -> None:
    moment = START + datetime.timedelta(microseconds=123_457)
    assert clock.from_micros(clock.to_micros(moment)) == moment


def test_a_secret_prints_as_dots_wherever_it_is_printed(caplog: pytest.LogCaptureFixture) -> None:
    hidden = secret.Secret("hunter2")
    logging.getLogger("test").warning("Read %s and %r", hidden, {"secret": hidden})
    assert "hunter2" not in f"{hidden} {hidden!r} {[hidden]}" + caplog.text
    with pytest.raises(TypeError):
        pickle.dumps(hidden)


def test_secrets_compare_by_their_text() -> None:
    assert secret.Secret("a") == secret.Secret("a")
    assert secret.Secret("a") != secret.Secret("b")
    assert secret.Secret("a") != "a"


def test_waits_grow_to_the_cap_and_use_the_whole_range() -> None:
    schedule = retry.Schedule(first_seconds=1, cap_seconds=8, tries=7)
    rounds = [list(schedule.waits(chance=random.Random(seed))) for seed in range(300)]
    ceilings = (1, 2, 4, 8, 8, 8)
    for place, ceiling in enumerate(ceilings):
        drawn = [waits[place] for waits in rounds]
        assert max(drawn) <= ceiling
        assert max(drawn) > 0.9 * ceiling
        assert min(drawn) < 0.1 * ceiling


def test_a_crash_point_that_is_not_chosen_does_nothing() -> None:
    name = crash_points.declare("test.nowhere", story="Nothing has happened.")
    crash_points.reach(name)
    assert crash_points.declared()[name] == "Nothing has happened."


def test_two_crash_points_cannot_share_a_name() -> None:
    crash_points.declare("test.twice", story="One.")
    with pytest.raises(ValueError, match="declared twice"):
        crash_points.declare("test.twice", story="Two.")
