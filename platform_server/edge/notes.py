"""What a process at the edge writes to stderr: one line a note, the engine's fields.

For: what an operator wants to know of this process. Never a token, a body, a header or a key.
What strangers can trigger is counted and written once a minute at most (``Tally``), so that
nobody fills a disk by knocking. JSON for machines, text for people (`log.format`).

Known limit: the engine's logging library would cost each of these processes memory, so that the
text for people is plainer than the engine's.
"""

import collections
import dataclasses
import json
import sys
from collections.abc import Mapping
from typing import Final

from runtime_kit import clock
from wire_protocol import times

_MAX_FIELD = 500
LEVELS: Final = ("debug", "info", "warning", "error")
FORMATS: Final = ("auto", "console", "json")


@dataclasses.dataclass(slots=True)
class _Chosen:
    """What the host asked for; one process, one log."""

    process: str = "listener"
    level: int = LEVELS.index("info")
    console: bool = False


_CHOSEN: Final = _Chosen()


def configure(*, level: str, form: str, process: str) -> None:
    """Choose the least serious note that is written, the form, and what this process is called."""
    _CHOSEN.process = process
    _CHOSEN.level = LEVELS.index(level)
    _CHOSEN.console = form == "console" or (form == "auto" and sys.stderr.isatty())


def write(event: str, *, level: str = "info", **fields: object) -> None:
    """Write one line, if its level is wanted."""
    if LEVELS.index(level) < _CHOSEN.level:
        return
    told: dict[str, object] = {"process": _CHOSEN.process}
    for name, value in fields.items():
        plain = isinstance(value, int | float | bool) or value is None
        told[name] = value if plain else str(value)[:_MAX_FIELD]
    timestamp = times.to_rfc3339(clock.SystemClock().now())
    if _CHOSEN.console:
        words = " ".join(f"{name}={value!r}" for name, value in sorted(told.items()))
        line = f"{timestamp} [{level:<9}] {event:<30} {words}"
    else:
        line = json.dumps(
            {"timestamp": timestamp, "level": level, "event": event, **told}, sort_keys=True
        )
    sys.stderr.write(line + "\n")
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
