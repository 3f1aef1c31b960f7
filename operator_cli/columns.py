"""Tables for people: aligned columns, nothing else (a library for this costs 60 ms a command).

Every text passes `clean`: what a machine says of itself could hold escape sequences that change
what the terminal shows. Known limit: a wide character counts as one column.
"""

import json
from collections.abc import Sequence

GAP = "  "
NOTHING = "-"


def clean(value: object) -> str:
    """A value as one line of printable text; control characters become `?`, nothing a dash."""
    if value is None or value == "":
        return NOTHING
    text = str(value)
    return "".join(sign if sign.isprintable() else "?" for sign in text)


def pairs(labels: object) -> str:
    """Labels as `k=v,k=v`."""
    if not isinstance(labels, dict) or not labels:
        return NOTHING
    return clean(",".join(f"{key}={_value(value)}" for key, value in sorted(labels.items())))


def _value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def listed(values: object) -> str:
    """A list as `a,b`."""
    if not isinstance(values, list) or not values:
        return NOTHING
    return clean(",".join(str(value) for value in values))


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Lines of a table with its head; trailing blanks are cut."""
    cells = [list(heads), *([clean(value) for value in row] for row in rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(heads))]
    return [
        GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]


def facts(rows: Sequence[tuple[str, object]]) -> list[str]:
    """Lines of `name  value` for one thing."""
    width = max((len(name) for name, _ in rows), default=0)
    return [f"{name.ljust(width)}{GAP}{clean(value)}" for name, value in rows]
