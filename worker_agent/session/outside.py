"""What a session needs from outside, as small protocols: the app hands in the real ones."""

import dataclasses
import random
from collections.abc import Awaitable, Callable
from typing import Protocol

from runtime_kit import clock as clock_kit
from runtime_kit.mux import link as links
from wire_protocol import heartbeats, pins, trust
from worker_agent.identity import replacing

Asker = Callable[[str, bytes], Awaitable[bytes]]
"""Asks the Platform one question over the open session; raises `NetworkFailure`."""


class Connector(Protocol):
    """Opens a link to a gateway that has been proved by one of the pins."""

    async def __call__(
        self,
        url: str,
        *,
        pins: frozenset[pins.Pin],
        proof: replacing.Candidate,
        answer: links.Answer,
    ) -> links.Link:
        """The link, on which nothing was said yet; raises `runtime_kit.failures.NetworkFailure`."""
        ...


class Trust(Protocol):
    """Whoever keeps the trust set; the session only says when to look."""

    @property
    def held(self) -> trust.Held:
        """The set held now."""
        ...

    async def take(self, answer: bytes, *, source: str) -> None:
        """Judges an answer to the trust question, and keeps it; raises a `Failure`."""
        ...

    async def ask(self) -> None:
        """Asks over the enrollment listener.

        Raises a `Failure`; `NotBelieved` where every known address gave an answer that is signed by
        no key held here.
        """
        ...


class Work(Protocol):
    """What the session is for: whoever carries out orders."""

    async def take(self, order: bytes) -> bytes:
        """Takes a signed order (`orders.SignedOrder`); the answer means: written down, to be done.

        Raises `links.Refusal`.
        """
        ...

    def session_opened(self, ask: Asker) -> None:
        """Results that were not taken yet can be told now. Returns at once."""
        ...

    def session_closed(self) -> None:
        """From now on nothing can be asked until a session opens again. Returns at once."""
        ...


class Teller(Protocol):
    """Where the session tells how it stands."""

    def tell(self, **fields: object) -> None:
        """The state has changed."""
        ...

    def heard(self) -> None:
        """The Platform has answered a heartbeat."""
        ...


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """All of it together."""

    clock: clock_kit.Clock
    chance: random.Random
    instance: str  # random for each start of the process
    connect: Connector
    trust: Trust
    work: Work
    teller: Teller
    health: Callable[[], bytes]
    heartbeat: Callable[[], heartbeats.Heartbeat]


class NoWork:
    """Knows no orders, and says so."""

    async def take(self, order: bytes) -> bytes:  # noqa: ARG002 - refused unread
        """Refuses."""
        raise links.Refusal("unknown", "This Agent takes no orders.")

    def session_opened(self, ask: Asker) -> None:
        """Nothing waits."""

    def session_closed(self) -> None:
        """Nothing waits."""


class Untold:
    """Tells nobody."""

    def tell(self, **fields: object) -> None:
        """Nobody listens."""

    def heard(self) -> None:
        """Nobody listens."""
