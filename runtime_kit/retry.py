"""Waits between tries: exponential, with full jitter, bounded.

Full jitter (a wait drawn from zero up to the cap of that try) spreads a crowd that failed at the
same moment; a fixed part would keep it together. The waiting goes through a `Clock`, so a test's
clock makes it vanish.
"""

import dataclasses
import random
from collections.abc import Iterator


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """How long to wait between tries, in seconds, and how often to try at all."""

    first_seconds: float = 1.0
    cap_seconds: float = 60.0
    tries: int | None = None

    def waits(self, *, chance: random.Random) -> Iterator[float]:
        """The wait after each failed try; ends when no further try is due."""
        made = 1
        ceiling = self.first_seconds
        while self.tries is None or made < self.tries:
            yield chance.uniform(0, ceiling)
            ceiling = min(self.cap_seconds, ceiling * 2)
            made += 1
