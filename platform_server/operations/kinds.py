"""What a kind of operation is to whoever carries operations on, and how it says what to do next.

A kind looks first, on a snapshot, whether there is anything to do; then, holding the operation, it
does one thing and writes it down. It raises `TryLater` or `Stop`; nothing else decides about
retries. What it did and could not write it does again: so each thing is done in the transaction
that writes it down, or can be found again before it is done twice.
"""

import dataclasses
import datetime
from typing import Final, Protocol

from platform_server.operations import holding, records
from platform_server.store import contract
from wire_protocol import problems

SOON: Final = 1.0
ONCE_WOKEN: Final = 30.0  # somebody's end wakes it; a lost signal costs that much


class TryLater(Exception):
    """It did not work now and may later; tried again with growing waits, so many times at most.

    `patient`: for ever, since how often it was tried says nothing (a question, a paused
    connection). `seconds`: what the other side asked us to wait at least.
    """

    def __init__(self, reason: str, *, patient: bool = False, seconds: float = 0.0) -> None:
        super().__init__(reason)
        self.patient = patient
        self.seconds = seconds


class Stop(Exception):
    """It will not work; the operation fails with this sentence."""

    def __init__(self, reason: str, *, kind: problems.Kind = problems.Kind.PERMANENT) -> None:
        super().__init__(reason)
        self.kind = kind


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """There is nothing to do before that many seconds have passed."""

    seconds: float = SOON


@dataclasses.dataclass(frozen=True, slots=True)
class Ready:
    """There is something to do now."""


Found = Wait | Ready


class Kind(Protocol):
    """One kind of operation."""

    @property
    def name(self) -> str:
        """As it stands in the row."""
        ...

    async def look(
        self, tx: contract.Tx, *, operation: records.Operation, now: datetime.datetime
    ) -> Found:
        """Whether there is something to do; writes nothing."""
        ...

    async def advance(self, held: holding.Held) -> None:
        """Does the next thing and writes it down, or finds that there is nothing to do.

        Raises `TryLater`, `Stop`, `holding.LeaseLost` and `contract.StoreError`; then nothing was
        written.
        """
        ...

    async def fail(self, held: holding.Held, failure: holding.Failure) -> None:
        """Writes down that it failed; raises `holding.LeaseLost` and `contract.StoreError`."""
        ...
