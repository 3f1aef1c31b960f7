"""The names of permissions, as interface.md lists them, and nothing else.

Some belong to parts that come later; a token may be given them today, so that it need not be
replaced then.
"""

from typing import Final

ALL: Final[frozenset[str]] = frozenset(
    {
        "nodes.view",
        "nodes.enroll",
        "nodes.manage",
        "audit.view",
        "operations.view",
        "operations.manage",
        "cloud.view",
        "cloud.connect",
        "cloud.manage",
        "projects.view",
        "projects.manage",
        "secrets.manage",
        "tokens.manage",
        "platform.manage",
        "backup.manage",
    }
)


class UnknownPermission(ValueError):
    """The permission does not exist; the message names those that do."""


def parse(names: list[str]) -> frozenset[str]:
    """Reads permission names; raises `UnknownPermission` naming the first that does not exist."""
    for name in names:
        if name not in ALL:
            raise UnknownPermission(
                f"There is no permission {name[:64]!r}. The permissions are: "
                f"{', '.join(sorted(ALL))}."
            )
    return frozenset(names)
