"""When an Agent asks for trust: daily at its own minute, soon after a failure, never in a rush."""

import datetime
import random

import pytest

from worker_agent.trust import rhythm

NOW = datetime.datetime(2026, 6, 1, 12, 30, 15, tzinfo=datetime.UTC)


@pytest.mark.parametrize("seed", range(50))
def test_the_next_day_is_met_at_the_agents_own_minute(seed: int) -> None:
    own = rhythm.Rhythm(chance=random.Random(seed))
    wait = own.wait_after_success(NOW)
    assert 0 < wait <= 86_400
    due = NOW + datetime.timedelta(seconds=wait)
    assert due.second == 0
    next_wait = own.wait_after_success(due)
    assert next_wait == 86_400, "the same minute every day"


def test_a_thousand_agents_spread_over_the_day() -> None:
    waits = [
        rhythm.Rhythm(chance=random.Random(seed)).wait_after_success(NOW) for seed in range(1000)
    ]
    an_hour = [sum(1 for wait in waits if wait // 3600 == hour) for hour in range(24)]
    assert max(an_hour) < 3 * 1000 / 24


@pytest.mark.parametrize("seed", range(50))
def test_from_the_third_failure_on_it_is_at_most_one_try_a_minute(seed: int) -> None:
    own = rhythm.Rhythm(chance=random.Random(seed))
    waits = [own.wait_after_failure() for _ in range(40)]
    assert all(wait <= 5 for wait in waits[:1])
    assert all(wait <= 30 for wait in waits[:2])
    assert all(60 <= wait <= 3600 for wait in waits[2:])


def test_agents_that_failed_together_do_not_come_back_together() -> None:
    waits = []
    for seed in range(1000):
        own = rhythm.Rhythm(chance=random.Random(seed))
        for _ in range(6):
            wait = own.wait_after_failure()
        waits.append(wait)
    assert max(waits) - min(waits) > 500


def test_a_success_forgets_the_failures() -> None:
    own = rhythm.Rhythm(chance=random.Random(1))
    for _ in range(10):
        own.wait_after_failure()
    own.wait_after_success(NOW)
    assert own.wait_after_failure() <= 5


def test_an_unknown_key_is_followed_up_at_once_and_at_most_once_an_hour() -> None:
    own = rhythm.Rhythm(chance=random.Random(1))
    asked = [second for second in range(0, 7300, 10) if own.may_follow_up(1000.0 + second)]
    assert asked == [0, 3600, 7200]
