"""What the waiting clients have in common: they drive the exchange and read events.

`client.Client` does it with httpx, `plain.PlainClient` without; the async client drives the same
generator by awaiting.
"""

import abc
import contextlib
import dataclasses
import os
import random
from collections.abc import Callable, Generator, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from enlist import calls, errors, event_stream, exchange, targets
from runtime_kit import retry

if TYPE_CHECKING:
    from wire_protocol import admin

T = TypeVar("T")


class Settings:
    """What every client knows: whom it talks to, and how long it tries."""

    def __init__(self, *, target: targets.Target, schedule: retry.Schedule) -> None:
        self.target = target
        self._schedule = schedule
        self._chance = random.SystemRandom()

    def steps(
        self, call: calls.Call[Any], *, key: str | None
    ) -> Generator[exchange.Step, exchange.Outcome, Any]:
        """The exchange for that call, yet to be driven."""
        return exchange.exchange(
            call,
            token=self.target.token,
            key=key or os.urandom(16).hex(),
            chance=self._chance,
            schedule=self._schedule,
        )

    def tail(
        self, *, after: int | None = None, infra: str | None = None, follow: bool = True
    ) -> event_stream.Tail:
        """A place in the stream of events, for `event_documents`."""
        return event_stream.Tail(
            after=after,
            infra=infra,
            token=self.target.token,
            chance=self._chance,
            follow=follow,
        )


class Meter:
    """Counts what is read of one answer and stops at the limit."""

    def __init__(self) -> None:
        self._left = exchange.MAX_ANSWER_BYTES

    def pass_on(self, chunk: bytes) -> bytes:
        """The same bytes; raises `Fault` past the limit."""
        self._left -= len(chunk)
        if self._left < 0:
            raise errors.Fault("The Platform's answer is larger than this client reads.")
        return chunk


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """An answer that is read piece by piece: it is whole when `pieces` has ended."""

    headers: Mapping[str, str] = dataclasses.field(repr=False)
    pieces: Iterator[bytes]


class Waiting(Settings, abc.ABC):
    """A client that waits for each answer."""

    losses: ClassVar[tuple[type[Exception], ...]]
    """Exceptions that mean that no answer came."""

    def __init__(
        self,
        *,
        target: targets.Target,
        schedule: retry.Schedule,
        pause: Callable[[float], None],
    ) -> None:
        super().__init__(target=target, schedule=schedule)
        self._pause = pause

    def send(self, call: calls.Call[T], *, key: str | None = None) -> T:
        """Carries out a call and gives its typed answer; `key` is the idempotency key."""
        return call.parse(self.document(call, key=key))

    def document(self, call: calls.Call[Any], *, key: str | None = None) -> Any:
        """Carries out a call and gives the JSON as the Platform sent it, without models."""
        steps = self.steps(call, key=key)
        try:
            step = next(steps)
            while True:
                step = steps.send(self._perform(step))
        except StopIteration as end:
            return end.value

    def check(self, call: calls.Call[Any]) -> "admin.Checked":
        """What that changing call would do; nothing is changed."""
        return self.send(calls.checked(call))

    def events(
        self, *, after: int | None = None, infra: str | None = None
    ) -> "Iterator[admin.Event]":
        """What happens, as it happens, from that sequence number on; reconnects by itself."""
        return map(event_stream.parse, self.event_documents(self.tail(after=after, infra=infra)))

    def event_documents(self, tail: event_stream.Tail) -> Generator[Any, None, None]:
        """The events behind that place, as JSON without models."""
        while not tail.ended:
            try:
                yield from self._listen(tail)
            except self.losses as error:
                tail.lost(self._lost(error))
            self._pause(tail.wait_seconds)

    @contextlib.contextmanager
    def download(self, call: calls.Call[None]) -> Iterator[Download]:
        """Asks once for what may be large; raises as a call does, also while it is read."""
        request = exchange.request_of(call, token=self.target.token, key=os.urandom(16).hex())
        with contextlib.ExitStack() as stack:
            with self._told():
                status, headers, pieces = stack.enter_context(self._stream(request))
                if status not in exchange.SUCCESSES:
                    meter = Meter()
                    content = b"".join(meter.pass_on(piece) for piece in pieces)
                    reply = exchange.Reply(status=status, headers=headers, content=content)
                    raise exchange.failure_of(reply)
            yield Download(headers=headers, pieces=self._read_on(pieces))

    def _read_on(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        with self._told():
            yield from pieces

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except self.losses as error:
            if isinstance(error, errors.EnlistError):
                raise
            raise errors.Temporary(self._lost(error).sentence) from error

    def close(self) -> None:
        """Closes the connections; the next call opens them again."""

    @abc.abstractmethod
    def _stream(
        self, request: exchange.Request
    ) -> contextlib.AbstractContextManager[tuple[int, Mapping[str, str], Iterator[bytes]]]:
        """Makes one request; gives status, headers and the body; raises one of `losses`."""

    @abc.abstractmethod
    def _ask(self, request: exchange.Request) -> exchange.Reply:
        """Makes one request; raises one of `losses`."""

    @abc.abstractmethod
    def _listen(self, tail: event_stream.Tail) -> Iterator[Any]:
        """Reads one stream of events to its end; raises one of `losses`."""

    @abc.abstractmethod
    def _lost(self, error: Exception) -> exchange.Lost:
        """The sentence about it; raises what waiting cannot mend."""

    def _perform(self, step: exchange.Step) -> exchange.Outcome:
        if isinstance(step, exchange.Wait):
            self._pause(step.seconds)
            return None
        try:
            return self._ask(step)
        except self.losses as error:
            self.close()
            return self._lost(error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.close()
