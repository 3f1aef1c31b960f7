"""What EC2 does with client tokens, since moto does nothing with them.

By the provider's documents and reports: a token is remembered per zone where the order names a
subnet or a zone, else per region; the same parameters are answered with the same machine, others
with IdempotentParameterMismatch; one whose machine has ended with IdempotentInstanceTerminated.

Known limit: how long EC2 remembers, and the order of its checks, only a live account shows.
"""

import dataclasses
from collections.abc import Mapping

from tests.support.clouds import server

_LEFT_OUT = frozenset({"Action", "Version", "ClientToken", "DryRun"})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """What a token was used for."""

    parameters: tuple[tuple[str, str], ...]
    ref: str
    reply: server.Reply


class Tokens:
    """The tokens of one account."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, str], Remembered] = {}

    def find(self, token: str, *, scope: str) -> Remembered | None:
        """What this token was used for in this zone or region."""
        return self._held.get((token, scope))

    def keep(
        self, token: str, *, scope: str, form: Mapping[str, str], ref: str, reply: server.Reply
    ) -> None:
        """Remembers it."""
        self._held[token, scope] = Remembered(parameters=compared(form), ref=ref, reply=reply)

    def refs(self, token: str) -> list[str]:
        """Every machine made with this token, whatever the zone: the filter `client-token`."""
        return [one.ref for (held, _), one in self._held.items() if held == token]


def compared(form: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The parameters that have to be the same."""
    return tuple(sorted((name, value) for name, value in form.items() if name not in _LEFT_OUT))
