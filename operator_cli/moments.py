"""Times for people, in this machine's zone; JSON keeps the Platform's RFC 3339.

Also reads what people type for a time: `30m`, `12h`, `7d`, or RFC 3339. The present moment is an
argument, so that a test says what time it is.
"""

import datetime
import re
import time

from operator_cli import columns
from wire_protocol import times

_SPAN = re.compile(r"(\d{1,5})([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_SOON = 120


def now() -> datetime.datetime:
    """The present moment in UTC. `runtime_kit.clock` brings asyncio, half the time of a command."""
    return datetime.datetime.now(datetime.UTC)


def pause(seconds: float) -> None:
    """Waits, between two looks at something that takes a while."""
    time.sleep(seconds)


def local(text: str | None) -> str:
    """The moment in local time to the second, or a dash."""
    if text is None:
        return columns.NOTHING
    try:
        return times.from_rfc3339(text).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError):  # no time, or none in this machine's zone
        return columns.clean(text)


def ago(text: str | None, *, now: datetime.datetime) -> str:
    """How long ago, or in how long, in the one unit that says enough."""
    if text is None:
        return columns.NOTHING
    try:
        seconds = (now - times.from_rfc3339(text)).total_seconds()
    except ValueError:
        return columns.clean(text)
    return f"in {_span(-seconds)}" if seconds < 0 else f"{_span(seconds)} ago"


def _span(seconds: float) -> str:
    if seconds < _SOON:
        return f"{int(seconds)} s"
    if seconds < 2 * _HOUR:
        return f"{int(seconds // _MINUTE)} min"
    if seconds < 2 * _DAY:
        return f"{int(seconds // _HOUR)} h"
    return f"{int(seconds // _DAY)} days"


def offset(milliseconds: object) -> str:
    """A clock's offset with its sign: `+12 ms`, `-3.4 s`."""
    if not isinstance(milliseconds, int):
        return columns.NOTHING
    if abs(milliseconds) < 1000:
        return f"{milliseconds:+d} ms"
    return f"{milliseconds / 1000:+.1f} s"


def parse_span(text: str) -> datetime.timedelta:
    """Reads `90d`, `12h`, `30m`; raises `ValueError` with the right form."""
    found = _SPAN.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text[:40]!r} is not a span of time: write 30m, 12h, 7d or 4w.")
    return datetime.timedelta(seconds=int(found.group(1)) * _SECONDS[found.group(2)])


def parse_since(text: str, *, now: datetime.datetime) -> str:
    """Reads a span back from now, or an RFC 3339 time; gives RFC 3339 in UTC."""
    if _SPAN.fullmatch(text.strip()):
        return times.to_rfc3339(now - parse_span(text))
    try:
        return times.to_rfc3339(times.from_rfc3339(text))
    except ValueError:
        raise ValueError(
            f"{text[:40]!r} is not a time: write 30m, 12h, 7d, or 2026-01-31T12:00:00Z."
        ) from None
