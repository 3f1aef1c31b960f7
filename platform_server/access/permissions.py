"""The names of permissions, as the wire knows them.

Some belong to parts that come later; a token may be given them today, so that it need not be
replaced then.
"""

import typing
from collections.abc import Iterable
from typing import Final

from wire_protocol import admin

ALL: Final[frozenset[str]] = frozenset(typing.get_args(admin.Permission))


class UnknownPermission(ValueError):
    """The permission does not exist; the message names those that do."""


def parse(names: Iterable[str]) -> frozenset[str]:
    """Reads permission names; raises `UnknownPermission` naming the first that does not exist."""
    given = frozenset(names)
    for name in sorted(given - ALL):
        raise UnknownPermission(
            f"There is no permission {name[:64]!r}. The permissions are: {', '.join(sorted(ALL))}."
        )
    return given
