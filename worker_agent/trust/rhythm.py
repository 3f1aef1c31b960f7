"""When the Agent asks for the trust set. Pure: times and chance are handed in.

At start, daily at a random minute (the same for the life of the process, so that a thousand Agents
spread over the day), and on an unknown key id at most once an hour. After failures it asks again
soon at first, and from the third failure on at most once a minute, then ever more rarely up to an
hour; all waits are drawn from their full range, so that Agents that failed together do not come
back together.
"""

import datetime
import random

MINUTES_A_DAY = 1440
UNKNOWN_KEY_SECONDS = 3600.0
_FIRST_WAITS = (5.0, 30.0)  # seconds, after the first and the second failure
_LEAST_LATER = 60.0
_MOST_LATER = 3600.0
_FAST_FAILURES = len(_FIRST_WAITS)


class Rhythm:
    """One Agent's rhythm; it remembers failures and when an unknown key was last followed up."""

    def __init__(self, *, chance: random.Random) -> None:
        self._chance = chance
        self._minute = chance.randrange(MINUTES_A_DAY)
        self._failures = 0
        self._followed_up: float | None = None

    def wait_after_success(self, now: datetime.datetime) -> float:
        """Seconds until this Agent's minute of the next day."""
        self._failures = 0
        midnight = now.astimezone(datetime.UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        due = midnight + datetime.timedelta(minutes=self._minute)
        if due <= now:
            due += datetime.timedelta(days=1)
        return (due - now).total_seconds()

    def wait_after_failure(self) -> float:
        """Seconds until the next try; each failure in a row may make it longer."""
        self._failures += 1
        if self._failures <= _FAST_FAILURES:
            return self._chance.uniform(0, _FIRST_WAITS[self._failures - 1])
        most = min(_MOST_LATER, _LEAST_LATER * 2 ** (self._failures - _FAST_FAILURES))
        return self._chance.uniform(_LEAST_LATER, most)

    def may_follow_up(self, monotonic: float) -> bool:
        """Whether an unknown key id may be followed up now; a yes counts as done."""
        last = self._followed_up
        if last is not None and monotonic - last < UNKNOWN_KEY_SECONDS:
            return False
        self._followed_up = monotonic
        return True
