"""An owner where a provider has no tags of key and value: as plain tags, or as one line of text.

Plain tags are `key:value` (DigitalOcean, Linode); one line serves where only one tag (Vultr) or
only a name (an SSH key, a snapshot) can carry anything. All parts are our own ids, which hold
neither `:` nor blanks.

Known limit: a person can write such a line too; whoever can do that holds the account's rights.
"""

from collections.abc import Iterable
from typing import Final

from provisioning import contract, naming

_MARK: Final = "enlist"
_PARTS: Final = 6


def as_tags(owner: contract.Owner) -> list[str]:
    """The tags of this owner, each `key:value`."""
    return [f"{key}:{value}" for key, value in naming.tags_of(owner).items()]


def tag(key: str, value: str) -> str:
    """One of them, to look up by."""
    return f"{key}:{value}"


def owner_of_tags(tags: Iterable[str]) -> contract.Owner | None:
    """Whose it is; None where one of the tags is missing."""
    pairs = (one.partition(":") for one in tags)
    return naming.owner_of({key: value for key, _, value in pairs})


def as_line(owner: contract.Owner) -> str:
    """The owner in one line: mark, installation, infra, operation, node, attempt."""
    parts = (owner.installation, owner.infra, owner.operation, owner.node, str(owner.attempt))
    return ":".join((_MARK, *parts))


def as_dotted(owner: contract.Owner) -> str:
    """The same line where only letters, digits, `-` and `.` may stand (a firewall's name)."""
    return as_line(owner).replace(":", ".")


def owner_of_dotted(text: str) -> contract.Owner | None:
    """Whose it is, from what `as_dotted` wrote."""
    return owner_of_line(text.replace(".", ":"))


def owner_of_line(text: str) -> contract.Owner | None:
    """Whose it is, from the last word of a text that `as_line` wrote; None where it is none."""
    words = text.split()
    parts = words[-1].split(":") if words else []
    if len(parts) != _PARTS or parts[0] != _MARK or not parts[5].isdecimal():
        return None
    return contract.Owner(
        installation=parts[1],
        infra=parts[2],
        operation=parts[3],
        node=parts[4],
        attempt=int(parts[5]),
    )
