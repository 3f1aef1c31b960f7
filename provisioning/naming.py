"""Names, tags and client tokens, derived from the operation and the attempt.

The same attempt always has the same name and token, a new attempt has new ones, and the tag of the
operation is the same over attempts. Names fit the narrowest provider (RFC 1035 labels, 63).
Tag keys and values fit every provider's rules: lower case, digits and `-`, at most 63.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Final

from provisioning import contract

LONGEST_NAME: Final = 63
LONGEST_WINDOWS_NAME: Final = 15
_SUFFIX: Final = 10
_FOREIGN: Final = re.compile(r"[^a-z0-9]+")
_MARK: Final = "enlist"
INSTALLATION: Final = f"{_MARK}-installation"
OPERATION: Final = f"{_MARK}-operation"
NODE: Final = f"{_MARK}-node"
INFRA: Final = f"{_MARK}-infra"
ATTEMPT: Final = f"{_MARK}-attempt"


def name_of(owner: contract.Owner) -> str:
    """The provider's name of this attempt: `NODE-SUFFIX`, the suffix fresh for each attempt."""
    return _name(owner, tail="")


def child_name(owner: contract.Owner, kind: contract.ChildKind) -> str:
    """The name of what hangs on the machine: its own name, shorter, with the kind behind it.

    However long the node's id is, the suffix stays whole: two attempts share no child's name.
    """
    return _name(owner, tail=f"-{kind.value}")


def client_token(owner: contract.Owner, *, zone: str) -> str:
    """64 hex digits for this operation, attempt and zone: the scope in which tokens are kept."""
    return _digest("token", owner.installation, owner.operation, str(owner.attempt), zone)


def tags_of(owner: contract.Owner) -> Mapping[str, str]:
    """What every machine and child of ours carries."""
    return {
        INSTALLATION: owner.installation,
        OPERATION: owner.operation,
        NODE: owner.node,
        INFRA: owner.infra,
        ATTEMPT: str(owner.attempt),
    }


def owner_of(tags: Mapping[str, str]) -> contract.Owner | None:
    """Whose it is; None where one of the tags is missing, empty or out of shape."""
    if not all(tags.get(name) for name in (INSTALLATION, INFRA, OPERATION, NODE)):
        return None
    try:
        return contract.Owner(
            installation=tags[INSTALLATION],
            infra=tags[INFRA],
            operation=tags[OPERATION],
            node=tags[NODE],
            attempt=int(tags[ATTEMPT]),
        )
    except (KeyError, ValueError):
        return None


def _name(owner: contract.Owner, *, tail: str) -> str:
    suffix = _digest("name", owner.installation, owner.operation, str(owner.attempt))[:_SUFFIX]
    room = LONGEST_NAME - len(suffix) - 1 - len(tail)
    stem = _FOREIGN.sub("-", owner.node.lower())[:room].strip("-")
    if not stem or not stem[0].isalpha():
        stem = f"n{stem}"[:room].rstrip("-")
    return f"{stem}-{suffix}{tail}"


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
