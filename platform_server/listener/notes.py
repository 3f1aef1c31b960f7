"""What the listener writes to stderr: one JSON object a line, for whoever started it.

For: what an operator wants to know of this process. Never a token, a body, a header or a key.
What strangers can trigger is counted and written once a minute at most (``Tally``), so that
nobody fills a disk by knocking.
"""

import collections
import json
import sys
from collections.abc import Mapping

from runtime_kit import clock

_MAX_FIELD = 500


def write(event: str, *, level: str = "info", **fields: object) -> None:
    """Write one line."""
    entry: dict[str, object] = {
        "at": clock.SystemClock().now().isoformat(timespec="milliseconds"),
        "level": level,
        "part": "listener",
        "event": event,
    }
    for name, value in fields.items():
        plain = isinstance(value, int | float | bool) or value is None
        entry[name] = value if plain else str(value)[:_MAX_FIELD]
    sys.stderr.write(json.dumps(entry) + "\n")
    sys.stderr.flush()


def write_counts(event: str, *, counts: Mapping[str, int]) -> None:
    """Write one line with what a ``Tally`` took."""
    write(event, **{f"{name}_count": value for name, value in counts.items()})  # type: ignore[arg-type]


class Tally:
    """Counts what strangers do, by a fixed set of words."""

    def __init__(self) -> None:
        self._counts: collections.Counter[str] = collections.Counter()

    def count(self, what: str, *, times: int = 1) -> None:
        """Add to one word's count."""
        self._counts[what] += times

    def take(self) -> dict[str, int]:
        """What was counted since the last time; empty if nothing was."""
        counts, self._counts = self._counts, collections.Counter()
        return {what: times for what, times in counts.items() if times}
