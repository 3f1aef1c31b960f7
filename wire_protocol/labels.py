"""Labels: small key-value pairs on a node.

Placement labels come from the operator. What a machine says of itself is kept apart
(`reported_labels`), shown, and never used to decide where work or secrets go.
"""

import re
from collections.abc import Iterable, Mapping

MOST_REPORTED = 16
MOST = 64
KEY_PATTERN = r"^[a-z0-9]([a-z0-9._/-]{0,61}[a-z0-9])?$"
VALUE_PATTERN = r"^[A-Za-z0-9._:/@+-]{0,63}$"
_KEY = re.compile(KEY_PATTERN.strip("^$"))
_VALUE = re.compile(VALUE_PATTERN.strip("^$"))


def check(labels: Mapping[str, str], *, most: int = MOST) -> dict[str, str]:
    """The labels if each is well formed and there are not too many; raises `ValueError`."""
    if len(labels) > most:
        raise ValueError(f"At most {most} labels are allowed; these are {len(labels)}.")
    for key, value in labels.items():
        if not _KEY.fullmatch(key):
            raise ValueError(
                f"The label key {key[:80]!r} is not well formed: 1 to 63 of a-z 0-9 . _ / -, "
                "beginning and ending with a letter or digit."
            )
        if not _VALUE.fullmatch(value):
            raise ValueError(
                f"The value of label {key!r} is not well formed: up to 63 of "
                "A-Z a-z 0-9 . _ : / @ + -."
            )
    return dict(labels)


def parse(pairs: Iterable[str], *, most: int = MOST) -> dict[str, str]:
    """Reads `KEY=VALUE` arguments; raises `ValueError` for a malformed or repeated one."""
    labels: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise ValueError(f"The label {pair[:80]!r} has no value: write KEY=VALUE.")
        if key in labels:
            raise ValueError(f"The label {key[:80]!r} is given twice.")
        labels[key] = value
    return check(labels, most=most)
