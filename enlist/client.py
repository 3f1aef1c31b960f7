"""The two clients: the same calls, carried out by waiting or by awaiting.

    with enlist.Client() as client:                    this machine's Platform, by its socket
        client.nodes.list()
    async with enlist.AsyncClient("https://…", token=…, pins=[…]) as client:
        await client.nodes.list()

Everything that decides stands in `exchange.py` and `event_stream.py`; what differs here is only
how to send and how to wait. Known limit: one client is for one thread or one event loop.
"""

import asyncio
import contextlib
import dataclasses
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import httpx

from enlist import (
    audit,
    backups,
    bundles,
    calls,
    cloud,
    driving,
    enrollments,
    errors,
    event_stream,
    exchange,
    nodes,
    operations,
    platforms,
    targets,
    tokens,
    wiring,
)
from runtime_kit import retry

if TYPE_CHECKING:
    from wire_protocol import admin

T = TypeVar("T")


class Client(driving.Waiting):
    """Talks to one Platform and waits for each answer.

    Args:
        platform: `https://host:port`, `http://` on loopback, or `unix:///…/run/platform.sock`;
            by default the socket of this machine's Platform, where the kernel says who asks.
        token: An API token (`enlist tokens create`); the socket needs none.
        pins: `sha256:` pins of the Platform's key, for one with its own certificate.
        ca_pem: Certificates that must have issued the Platform's, in place of the system's roots.
        target: All of this in one value, from `enlist.targets`.
        schedule: How long to wait between tries, and how many.
        pause: How to wait between tries; a test puts in something that does not.
    """

    losses = wiring.LOSSES

    def __init__(
        self,
        platform: str | None = None,
        *,
        token: str | None = None,
        pins: Sequence[str] = (),
        ca_pem: str | None = None,
        target: targets.Target | None = None,
        schedule: retry.Schedule = exchange.SCHEDULE,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(
            target=target or targets.choose(platform, token=token, pins=pins, ca_pem=ca_pem),
            schedule=schedule,
            pause=pause,
        )
        self._http: httpx.Client | None = None
        self.nodes = nodes.Nodes(self)
        self.enrollments = enrollments.Enrollments(self)
        self.tokens = tokens.Tokens(self)
        self.audit = audit.Audit(self)
        self.platform = platforms.Platform(self)
        self.bundles = bundles.Bundles(self)
        self.operations = operations.Operations(self)
        self.cloud = cloud.Cloud(self)
        self.backup = backups.Backup(self)

    def close(self) -> None:
        """Closes the connections; the next call opens them again."""
        if self._http is not None:
            self._http.close()
            self._http = None

    def _ask(self, request: exchange.Request) -> exchange.Reply:
        with self._open().stream(**wiring.asking(request)) as response:
            return wiring.reply(response, _whole(response))

    @contextlib.contextmanager
    def _stream(
        self, request: exchange.Request
    ) -> Iterator[tuple[int, Mapping[str, str], Iterator[bytes]]]:
        with self._open().stream(**wiring.asking(request)) as response:
            headers = {name.lower(): value for name, value in response.headers.items()}
            yield response.status_code, headers, response.iter_raw()

    def _listen(self, tail: event_stream.Tail) -> Iterator[Any]:
        with self._open().stream(**wiring.listening(tail)) as response:
            if response.is_success:
                for chunk in response.iter_raw():
                    yield from tail.feed(chunk)
                tail.finished()
            else:
                tail.refused(wiring.reply(response, _whole(response)))

    def _lost(self, error: Exception) -> exchange.Lost:
        return wiring.lost(error, target=self.target)

    def _open(self) -> httpx.Client:
        if self._http is None:
            context = wiring.context_now(self.target)
            transport = httpx.HTTPTransport(**wiring.transport(self.target, context=context))
            self._http = httpx.Client(**wiring.client(self.target), transport=transport)
        return self._http


def _whole(response: httpx.Response) -> bytes:
    meter = driving.Meter()
    return b"".join(meter.pass_on(chunk) for chunk in response.iter_raw())


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AsyncDownload:
    """An answer that is read piece by piece: it is whole when `pieces` has ended."""

    headers: Mapping[str, str] = dataclasses.field(repr=False)
    pieces: AsyncIterator[bytes]


class AsyncClient(driving.Settings):
    """Talks to one Platform under asyncio; made with the same arguments as `Client`."""

    def __init__(
        self,
        platform: str | None = None,
        *,
        token: str | None = None,
        pins: Sequence[str] = (),
        ca_pem: str | None = None,
        target: targets.Target | None = None,
        schedule: retry.Schedule = exchange.SCHEDULE,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        super().__init__(
            target=target or targets.choose(platform, token=token, pins=pins, ca_pem=ca_pem),
            schedule=schedule,
        )
        self._pause = pause
        self._http: httpx.AsyncClient | None = None
        self.nodes = nodes.AsyncNodes(self)
        self.enrollments = enrollments.AsyncEnrollments(self)
        self.tokens = tokens.AsyncTokens(self)
        self.audit = audit.AsyncAudit(self)
        self.platform = platforms.AsyncPlatform(self)
        self.bundles = bundles.AsyncBundles(self)
        self.operations = operations.AsyncOperations(self)
        self.cloud = cloud.AsyncCloud(self)
        self.backup = backups.AsyncBackup(self)

    async def send(self, call: calls.Call[T], *, key: str | None = None) -> T:
        """Carries out a call and gives its typed answer; `key` is the idempotency key."""
        return call.parse(await self.document(call, key=key))

    async def document(self, call: calls.Call[Any], *, key: str | None = None) -> Any:
        """Carries out a call and gives the JSON as the Platform sent it, without models."""
        steps = self.steps(call, key=key)
        try:
            step = next(steps)
            while True:
                step = steps.send(await self._perform(step))
        except StopIteration as end:
            return end.value

    async def check(self, call: calls.Call[Any]) -> "admin.Checked":
        """What that changing call would do; nothing is changed."""
        return await self.send(calls.checked(call))

    async def events(
        self, *, after: int | None = None, infra: str | None = None
    ) -> "AsyncIterator[admin.Event]":
        """What happens, as it happens, from that sequence number on; reconnects by itself."""
        async for document in self.event_documents(self.tail(after=after, infra=infra)):
            yield event_stream.parse(document)

    async def event_documents(self, tail: event_stream.Tail) -> AsyncIterator[Any]:
        """The events behind that place, as JSON without models."""
        while not tail.ended:
            try:
                http = await self._open()
                async with http.stream(**wiring.listening(tail)) as response:
                    if response.is_success:
                        async for chunk in response.aiter_raw():
                            for document in tail.feed(chunk):
                                yield document
                        tail.finished()
                    else:
                        tail.refused(wiring.reply(response, await self._read(response)))
            except wiring.LOSSES as error:
                tail.lost(wiring.lost(error, target=self.target))
            await self._pause(tail.wait_seconds)

    @contextlib.asynccontextmanager
    async def download(self, call: calls.Call[None]) -> AsyncIterator[AsyncDownload]:
        """Asks once for what may be large; raises as a call does, also while it is read."""
        request = exchange.request_of(call, token=self.target.token, key=os.urandom(16).hex())
        async with contextlib.AsyncExitStack() as stack:
            with self._told():
                http = await self._open()
                response = await stack.enter_async_context(http.stream(**wiring.asking(request)))
                if not response.is_success:
                    reply = wiring.reply(response, await self._read(response))
                    raise exchange.failure_of(reply)
            headers = {name.lower(): value for name, value in response.headers.items()}
            yield AsyncDownload(headers=headers, pieces=self._read_on(response))

    async def _read_on(self, response: httpx.Response) -> AsyncIterator[bytes]:
        with self._told():
            async for piece in response.aiter_raw():
                yield piece

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except httpx.HTTPError as error:
            raise errors.Temporary(wiring.lost(error, target=self.target).sentence) from error

    async def close(self) -> None:
        """Closes the connections; the next call opens them again."""
        if self._http is not None:
            await self._http.aclose()
            self._http = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _perform(self, step: exchange.Step) -> exchange.Outcome:
        if isinstance(step, exchange.Wait):
            await self._pause(step.seconds)
            return None
        try:
            http = await self._open()
            async with http.stream(**wiring.asking(step)) as response:
                return wiring.reply(response, await self._read(response))
        except wiring.LOSSES as error:
            await self.close()
            return wiring.lost(error, target=self.target)

    async def _read(self, response: httpx.Response) -> bytes:
        meter = driving.Meter()
        return b"".join([meter.pass_on(chunk) async for chunk in response.aiter_raw()])

    async def _open(self) -> httpx.AsyncClient:
        if self._http is None:
            context = await wiring.context(self.target)
            transport = httpx.AsyncHTTPTransport(**wiring.transport(self.target, context=context))
            self._http = httpx.AsyncClient(**wiring.client(self.target), transport=transport)
        return self._http
