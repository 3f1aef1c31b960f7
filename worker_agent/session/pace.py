"""How long to wait until the next try. Pure: times and chance are handed in.

After a loss time is cut into spans, each with one try: 2 s, five of 8 s, then 16, 32 and 60 s for
ever. Where in a span the tries lie is drawn once a loss, from the whole of it. So a thousand
machines that lost the Platform in one moment come back evenly, whenever it is there again, where
waits that follow one another would bunch them (docs/adr). What stands in the way until somebody
acts (a key that does not match, a machine that is not known) is tried at most once a minute from
the third failure on.
"""

import random

SPANS = (2.0, 8.0, 8.0, 8.0, 8.0, 8.0, 16.0, 32.0, 60.0)  # seconds
STANDING_FIRST = (5.0, 30.0)  # after the first and the second
STANDING_LATER = (60.0, 120.0)
MOST_ASKED = 300.0  # seconds that the other side may ask for; it is proved, but may be mistaken
STEADY_SECONDS = 30.0  # a session that lasted so long begins anew


class Pace:
    """One machine's pace; it counts failures since the last steady session."""

    def __init__(self, *, chance: random.Random) -> None:
        self._chance = chance
        self._tries = 0
        self._standing = 0
        self._span_ends = 0.0
        self._phase = 0.0

    @property
    def failures(self) -> int:
        """How many tries in a row came to nothing."""
        return self._tries + self._standing

    def after_steady(self) -> None:
        """A session held for a while: the next loss begins anew."""
        self._tries = self._standing = 0

    def after_passing(self, now: float, *, asked: float | None = None) -> float:
        """Seconds to wait after what passes by itself; `asked` by the other side counts."""
        width = SPANS[min(self._tries, len(SPANS) - 1)]
        if not self._tries:
            self._phase = self._chance.random()
        start = max(self._span_ends, now) if self._tries else now
        self._tries += 1
        self._span_ends = start + width
        own = start - now + self._phase * width
        if asked is None:
            return own
        # Whoever is sent away again and again keeps to its own pace, whatever it is told.
        return max(min(asked, MOST_ASKED), own if self._tries > 1 else 0.0)

    def after_standing(self) -> float:
        """Seconds to wait after what somebody must change."""
        self._standing += 1
        if self._standing <= len(STANDING_FIRST):
            return self._chance.uniform(0, STANDING_FIRST[self._standing - 1])
        return self._chance.uniform(*STANDING_LATER)
