"""What a fake cloud does wrong, and when: the verbs of the design's section 5.0.

`arm` sets what happens to the next requests of one call, in order; the attributes are what stands
until it is set back.
Nothing here waits for time to pass: `delay` and the lags are measured on the fake's own clock,
which a test moves.
"""

import collections
import datetime
import enum
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from runtime_kit import clock as clock_kit
from tests.support import waits


class Verb(enum.StrEnum):
    """What can be done to one request."""

    COMMIT_THEN_DROP = "commit-then-drop"  # does the work and closes the connection
    COMMIT_THEN_5XX = "commit-then-5xx"  # does the work and answers `status`, `html` or JSON
    BEFORE_5XX = "5xx-before"  # does nothing and answers `status`, with `raw` where it is given
    DELAY = "delay"  # does the work after `seconds` of the fake's clock
    HANG = "hang"  # does nothing and never answers
    RATE = "429"  # does nothing and answers 429 with `headers`
    FAIL_CODE = "fail-code"  # does nothing and answers the provider's error of this `code`
    ASYNC_FAIL = "async-fail"  # accepts, and what was accepted fails with `code`


@dataclass(frozen=True, slots=True, kw_only=True)
class Armed:
    """One verb with what it needs."""

    verb: Verb
    status: int | None = None  # 504 where none is named, or what the provider gives the code
    html: bool = False
    raw: bytes | None = None  # the very bytes, in place of the provider's form
    seconds: float = 0.0
    code: str = ""
    message: str = "as the script says"
    headers: Mapping[str, str] = field(default_factory=dict)


class Script:
    """The faults of one fake. Safe to use from the test and the server's threads at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._armed: dict[str, collections.deque[Armed]] = {}
        self._standing: dict[str, Armed] = {}
        self._released = threading.Event()
        self.list_lag = 0.0  # seconds for which lists do not show what is new
        self.describe_lag = 0.0  # seconds for which asking by id does not find it either
        self.page_size: int | None = None  # no page holds more
        self.name_busy = 0.0  # seconds for which a deleted thing's name stays taken
        self.is_token_revoked = False  # every call is answered as with a dead credential
        self.clock = 0.0  # seconds by which the fake's own clock is off

    def arm(self, armed: Armed, *, on: str, times: int = 1) -> None:
        """The next `times` requests of the call `on` meet this, after those armed before."""
        with self._lock:
            self._armed.setdefault(on, collections.deque()).extend([armed] * times)

    def arm_always(self, armed: Armed, *, on: str) -> None:
        """Every request of this call meets it, until `disarm`."""
        with self._lock:
            self._standing[on] = armed

    def disarm(self, *, on: str) -> None:
        """Requests of this call go well again."""
        with self._lock:
            self._armed.pop(on, None)
            self._standing.pop(on, None)

    def take(self, name: str) -> Armed | None:
        """What this request meets; used up by asking."""
        with self._lock:
            waiting = self._armed.get(name)
            return waiting.popleft() if waiting else self._standing.get(name)

    def release(self) -> None:
        """Lets go of whatever hangs or is delayed; what was delayed does its work then."""
        self._released.set()

    def hold(self, seconds: float | None, *, clock: clock_kit.Clock) -> None:
        """Keeps the asking thread until the clock has moved that far, or until `release`."""
        until = None if seconds is None else clock.monotonic() + seconds
        while not self._released.wait(waits.PACE_SECONDS):
            if until is not None and clock.monotonic() >= until:
                return

    def now(self, clock: clock_kit.Clock) -> datetime.datetime:
        """The fake's own time: the test's clock and what it is off."""
        return clock.now() + datetime.timedelta(seconds=self.clock)
