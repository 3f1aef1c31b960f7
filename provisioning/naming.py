"""Names, tags and client tokens, derived from the operation and the attempt.

The same attempt always has the same name and token, a new attempt has new ones, and the tag of the
operation is the same over attempts. Names fit the narrowest provider (RFC 1035 labels, 63).
Tag keys and values fit every provider's rules: lower case, digits and `-`, at most 63.
"""

import hashlib
from collections.abc import Mapping
from typing import Final

from provisioning import contract

LONGEST_NAME: Final = 63
LONGEST_WINDOWS_NAME: Final = 15
_MARK: Final = "enlist"
INSTALLATION: Final = f"{_MARK}-installation"
OPERATION: Final = f"{_MARK}-operation"
NODE: Final = f"{_MARK}-node"
INFRA: Final = f"{_MARK}-infra"
ATTEMPT: Final = f"{_MARK}-attempt"


def name_of(owner: contract.Owner) -> str:
    """The provider's name of this attempt: `NODE-SUFFIX`, the suffix fresh for each attempt."""
    suffix = _digest("name", owner.installation, owner.operation, str(owner.attempt))[:10]
    stem = owner.node.lower().replace(".", "-").strip("-")[: LONGEST_NAME - len(suffix) - 1]
    stem = stem.rstrip("-")
    if not stem or not stem[0].isalpha():
        stem = f"n{stem}"[: LONGEST_NAME - len(suffix) - 1]
    return f"{stem}-{suffix}"


def child_name(owner: contract.Owner, kind: contract.ChildKind) -> str:
    """The name of what hangs on the machine: its own name with the kind behind it."""
    tail = f"-{kind.value}"
    return f"{name_of(owner)[: LONGEST_NAME - len(tail)].rstrip('-')}{tail}"


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
    """Whose it is; None where one of the tags is missing or out of shape."""
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


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
