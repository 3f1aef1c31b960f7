"""Which rights a credential holds, from what Azure says of it, and which are missing.

Azure answers with grants: actions with wildcards, less the exceptions of the same grant. A right is
held where one grant has it among its actions and not among its exceptions.

Known limit: neither deny assignments nor Azure Policy show here; only a use finds those.
"""

import dataclasses
import re
from collections.abc import Iterable, Sequence
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What one role gives here."""

    actions: tuple[str, ...]
    not_actions: tuple[str, ...]

    def holds(self, right: str) -> bool:
        """Whether it gives this right."""
        return _any_fits(self.actions, right) and not _any_fits(self.not_actions, right)


def grants_of(rows: Iterable[Any]) -> tuple[Grant, ...]:
    """The grants of an answer's `value`; what is out of shape grants nothing."""
    return tuple(
        Grant(
            actions=_texts(row.get("actions")),
            not_actions=_texts(row.get("notActions")),
        )
        for row in rows
        if isinstance(row, dict)
    )


def missing(needed: Iterable[str], *, grants: Sequence[Grant]) -> tuple[str, ...]:
    """Those of the needed rights that no grant gives, in the order asked for."""
    return tuple(right for right in needed if not any(one.holds(right) for one in grants))


def _any_fits(patterns: Iterable[str], right: str) -> bool:
    return any(_fits(pattern, right) for pattern in patterns)


def _fits(pattern: str, right: str) -> bool:
    """Azure compares without case, and `*` stands for anything, slashes too."""
    parts = (re.escape(part) for part in pattern.split("*"))
    return re.fullmatch(".*".join(parts), right, re.IGNORECASE) is not None


def _texts(told: Any) -> tuple[str, ...]:
    return tuple(one for one in told or () if isinstance(one, str))
