"""Pauses that grow: when to come back to something that did not work, or was not ready yet.

In memory and of one engine; forgotten means at once. Not for: waiting, which is its user's.
"""

import dataclasses
from collections.abc import Hashable
from collections.abc import Set as AbstractSet
from typing import Final, Generic, TypeVar

from runtime_kit import clock as clock_kit

KeyT = TypeVar("KeyT", bound=Hashable)
FIRST_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 60.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Pause:
    until: float
    next_seconds: float


class Pauses(Generic[KeyT]):
    """Pauses by key: a second first, then twice as long each time, a minute at most."""

    def __init__(self, clock: clock_kit.Clock) -> None:
        self._clock = clock
        self._pauses: dict[KeyT, _Pause] = {}

    def begin(self, key: KeyT) -> None:
        """Comes back to it later, each time later than before."""
        former = self._pauses.get(key)
        seconds = FIRST_SECONDS if former is None else former.next_seconds
        self._pauses[key] = _Pause(
            until=self._clock.monotonic() + seconds,
            next_seconds=min(2 * seconds, LONGEST_SECONDS),
        )

    def lasts(self, key: KeyT) -> bool:
        """Whether it is not yet time."""
        pause = self._pauses.get(key)
        return pause is not None and self._clock.monotonic() < pause.until

    def forget(self, key: KeyT) -> None:
        """At once, and the next pause is the shortest again."""
        self._pauses.pop(key, None)

    def keep(self, keys: AbstractSet[KeyT]) -> None:
        """Forgets all others."""
        for gone in self._pauses.keys() - keys:
            del self._pauses[gone]

    def forget_old(self) -> None:
        """Forgets those that ended so long ago that whoever asked has gone."""
        before = self._clock.monotonic() - LONGEST_SECONDS
        for key in [key for key, pause in self._pauses.items() if pause.until < before]:
            del self._pauses[key]
