"""Times as they cross the wire: RFC 3339 in UTC."""

import datetime

_LONGEST = 40  # an RFC 3339 time with microseconds and an offset has 32 characters


def to_rfc3339(moment: datetime.datetime) -> str:
    """The moment in UTC with `Z`; fractions only where there are any."""
    return moment.astimezone(datetime.UTC).isoformat().removesuffix("+00:00") + "Z"


def from_rfc3339(text: str) -> datetime.datetime:
    """Reads a moment; raises `ValueError` when it has no zone, not this form, or no UTC.

    The first and the last day that can be written have offsets under which they lie outside of
    what can be counted.
    """
    if len(text) > _LONGEST:
        raise ValueError(f"A time is at most {_LONGEST} characters long.")
    moment = datetime.datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"The time {text!r} needs a zone, as in 2026-01-31T12:00:00Z.")
    try:
        return moment.astimezone(datetime.UTC)
    except OverflowError:
        raise ValueError(f"The time {text!r} lies outside of the years 1 to 9999.") from None
