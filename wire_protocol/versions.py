"""Versions: which machine may join which Platform, and how a node's version is shown."""

import re
from typing import Literal

Compatibility = Literal["current", "behind", "unknown"]

_FORM = re.compile(r"(\d{1,6})\.(\d{1,6})\.(\d{1,6})(?:[-+.a-z0-9]{0,32})?", re.ASCII)
PATTERN = r"^[0-9]{1,6}\.[0-9]{1,6}\.[0-9]{1,6}[-+.a-z0-9]{0,32}$"  # \d would take any script's


def parse(text: str) -> tuple[int, int, int]:
    """Reads `X.Y.Z` with an optional suffix, which does not count; raises `ValueError`."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise ValueError("A version has the form 1.2.3.")
    return int(found.group(1)), int(found.group(2)), int(found.group(3))


def is_newer(candidate: str, than: str) -> bool:
    """Whether the first is newer; both must be well formed."""
    return parse(candidate) > parse(than)


def compatibility(node_version: str | None, *, platform_version: str) -> Compatibility:
    """How a node's version stands to the Platform's (Z-50)."""
    if node_version is None:
        return "unknown"
    try:
        return "behind" if is_newer(platform_version, node_version) else "current"
    except ValueError:
        return "unknown"
