"""The one way to a driver: recorded before it can call, stopped while its credential is refused.

What cannot be recorded is not done. Opening a driver writes one entry of the action log for the
connection, the purpose, the person and the hour; every call that changes something writes one of
its own before it is sent. A refused credential pauses the connection once, with one event; from
then on one use in five minutes tries whether it works again, and a newly saved credential ends the
pause at once.

Whoever uses a connection at the same time uses one driver, so that a session is opened once and
what is asked by many at once can be one call.

Known limit: entries of reading are folded in each engine by itself, so two engines write two.
"""

import asyncio
import contextlib
import contextvars
import dataclasses
import datetime
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Final, Protocol

from platform_server.audit import actions
from platform_server.cloud import connections, pausing
from platform_server.operations import kinds
from platform_server.sealing import envelope
from platform_server.store import contract as store_contract
from provisioning import contract, outcomes, providers
from runtime_kit import clock as clock_kit
from runtime_kit import secret as secret_kit

_PAUSING: Final = (outcomes.Outcome.AUTH_LOST, outcomes.Outcome.CLOCK)
PROBE: Final = "probe"


class Paused(kinds.TryLater):
    """The connection's credential is refused; nothing is tried before it is mended.

    Not counted as a failed try: what waits for a connection waits for as long as it takes.
    """

    def __init__(self, connection: connections.Connection, reason: str) -> None:
        super().__init__(
            f"The connection {connection.name} is paused: {reason} Save a credential that works: "
            f"enlist cloud connections save {connection.name} --provider {connection.provider}",
            patient=True,
            seconds=pausing.LOOK_SECONDS,
        )
        self.connection_id = connection.connection_id
        self.reason = reason


class ReadingOnly(Exception):
    """A use that was to read would have changed something: a fault of ours, nothing was sent."""


def tell_unusable(log: logging.Logger, sentence: str, *, connection: str, fault: Exception) -> None:
    """Logs why a loop over connections puts this one off; a fault of ours with where it was."""
    is_expected = isinstance(
        fault,
        outcomes.Fault
        | kinds.TryLater
        | connections.NoSuchConnection
        | store_contract.StoreError
        | TimeoutError,
    )
    log.log(
        logging.WARNING if is_expected else logging.ERROR,
        sentence,
        extra={"connection": connection, "reason": str(fault)},
        exc_info=None if is_expected else fault,
    )


class Clouds(Protocol):
    """Whoever opens drivers."""

    def driver(
        self,
        connection_id: str,
        *,
        purpose: str,
        actor: str,
        operation_id: str | None = None,
        changes: bool,
    ) -> contextlib.AbstractAsyncContextManager[contract.Driver]:
        """A driver for the block, closed after it.

        Entering raises `Paused`, `connections.NoSuchConnection`, `outcomes.Fault` (where a session
        has to be opened first) and `StoreError` (then nothing was called). Faults raised inside
        pass through, and should not be caught inside: those that say that the credential is refused
        pause the connection on their way. A call that changes something while `changes` is false
        raises `ReadingOnly`.
        """
        ...


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What a driver is made of."""

    connection: connections.Connection
    secret: secret_kit.Secret | None
    observer: contract.Observer


Opener = Callable[[Opening], Awaitable[contract.Driver]]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """Who uses a connection, and what for."""

    purpose: str
    actor: str
    operation_id: str | None
    changes: bool


Fence = Callable[[store_contract.Tx], Awaitable[None]]
"""Whether a change may still be asked for, in the transaction that records it; raises if not."""

_FENCE: Final[contextvars.ContextVar[Fence | None]] = contextvars.ContextVar("fence", default=None)

_PRESENT: Final[contextvars.ContextVar[Use]] = contextvars.ContextVar("use")
"""On whose behalf a driver that several share is called, in each task by itself."""


@contextlib.contextmanager
def fenced(fence: Fence) -> Iterator[None]:
    """In this block each call that changes something is asked of `fence` right before it is sent.

    A driver may make several for one order, and minutes may pass in between.
    """
    token = _FENCE.set(fence)
    try:
        yield
    finally:
        _FENCE.reset(token)


@dataclasses.dataclass(slots=True)
class _Shared:
    """A driver that is open, or being opened, and how many use it."""

    opening: asyncio.Task[contract.Driver]
    users: int = 0


class StoredClouds:
    """The drivers of the connections in the store. Used from one event loop."""

    def __init__(
        self,
        store: store_contract.Store,
        *,
        keyring: envelope.Keyring,
        opener: Opener,
        clock: clock_kit.Clock,
        environment: str,
    ) -> None:
        self._store = store
        self._keyring = keyring
        self._opener = opener
        self._clock = clock
        self._environment = environment
        self._hour: datetime.datetime | None = None
        self._recorded: set[tuple[str, str, str]] = set()
        self._shared: dict[tuple[str, datetime.datetime], _Shared] = {}

    @contextlib.asynccontextmanager
    async def driver(
        self,
        connection_id: str,
        *,
        purpose: str,
        actor: str,
        operation_id: str | None = None,
        changes: bool,
    ) -> AsyncIterator[contract.Driver]:
        """See `Clouds.driver`."""
        connection = await self._store.read(
            lambda tx: connections.get(tx, connection_id=connection_id)
        )
        if connection.pause is not None:
            await self._probe(connection, pause=connection.pause)
        use = Use(purpose=purpose, actor=actor, operation_id=operation_id, changes=changes)
        async with self._opened(connection, use=use) as driver:
            yield driver

    @contextlib.asynccontextmanager
    async def trial(
        self, connection: connections.Connection, *, secret: secret_kit.Secret | None, actor: str
    ) -> AsyncIterator[contract.Driver]:
        """A driver with a credential that is not saved yet; recorded as any other use.

        A refusal pauses nothing. Raises as `driver` does, but never `Paused`.
        """
        use = Use(purpose="prove", actor=actor, operation_id=None, changes=False)
        await self._record_use(connection, use=use)
        token = _PRESENT.set(use)
        try:
            driver = await self._open(connection, secret=secret)
            try:
                yield driver
            finally:
                await driver.close()
        finally:
            _PRESENT.reset(token)

    # Inside.

    @contextlib.asynccontextmanager
    async def _opened(
        self, connection: connections.Connection, *, use: Use
    ) -> AsyncIterator[contract.Driver]:
        await self._record_use(connection, use=use)
        token = _PRESENT.set(use)
        try:
            async with self._share(connection) as driver:
                yield driver
        except outcomes.Fault as fault:
            if fault.outcome in _PAUSING:
                await self._pause(connection, fault=fault)
            raise
        finally:
            _PRESENT.reset(token)

    @contextlib.asynccontextmanager
    async def _share(self, connection: connections.Connection) -> AsyncIterator[contract.Driver]:
        """The driver that is open for this credential, or a new one; the last user closes it."""
        key = (connection.connection_id, connection.credential_at)
        shared = self._shared.get(key)
        if shared is None:
            shared = _Shared(asyncio.create_task(self._open_stored(connection)))
            self._shared[key] = shared
        shared.users += 1
        try:
            yield await asyncio.shield(shared.opening)
        finally:
            shared.users -= 1
            if not shared.users:
                del self._shared[key]
                shared.opening.cancel()
                (opened,) = await asyncio.gather(shared.opening, return_exceptions=True)
                if not isinstance(opened, BaseException):
                    await opened.close()

    async def _open_stored(self, connection: connections.Connection) -> contract.Driver:
        raw = await self._store.read(
            lambda tx: connections.open_secret(
                tx, keyring=self._keyring, connection_id=connection.connection_id
            )
        )
        secret = None if raw is None else secret_kit.Secret(raw.decode())
        return await self._open(connection, secret=secret)

    async def _open(
        self, connection: connections.Connection, *, secret: secret_kit.Secret | None
    ) -> contract.Driver:
        async def observe(call: contract.ApiCall, /) -> None:
            if call.changes:
                await self._record_call(connection, use=_PRESENT.get(), call=call)

        opening = Opening(connection=connection, secret=secret, observer=observe)
        return await self._opener(opening)

    async def _probe(self, connection: connections.Connection, *, pause: connections.Pause) -> None:
        """Resumes the connection if it works again; raises `Paused`."""
        took = await self._store.transact(
            lambda tx: pausing.take_probe(tx, connection=connection, now=self._clock.now())
        )
        if not took:
            raise Paused(connection, pause.reason)
        use = Use(purpose=PROBE, actor=connections.ACTOR, operation_id=None, changes=False)
        try:
            async with self._opened(connection, use=use) as driver:
                found, _ = pausing.without_spare(await driver.validate(), calls=driver.calls)
        except outcomes.Fault as fault:
            raise Paused(connection, str(fault)) from fault
        if found.missing:
            lacking = f"The credential works and lacks rights: {', '.join(found.missing)}."
            raise Paused(connection, lacking)
        resumed = await self._store.transact(
            lambda tx: pausing.resume(
                tx,
                connection=connection,
                actor=connections.ACTOR,
                environment=self._environment,
                now=self._clock.now(),
            )
        )
        if not resumed:  # by now it is in use again, or has another credential that is held back
            await self._require_resumed(connection)

    async def _require_resumed(self, connection: connections.Connection) -> None:
        present = await self._store.read(
            lambda tx: connections.get(tx, connection_id=connection.connection_id)
        )
        if present.pause is not None:
            raise Paused(present, present.pause.reason)

    async def _pause(self, connection: connections.Connection, *, fault: outcomes.Fault) -> None:
        await self._store.transact(
            lambda tx: pausing.pause(
                tx,
                connection=connection,
                reason=str(fault),
                topic=fault.topic.value,
                environment=self._environment,
                now=self._clock.now(),
            )
        )

    async def _record_use(self, connection: connections.Connection, *, use: Use) -> None:
        hour = self._clock.now().replace(minute=0, second=0, microsecond=0)
        if hour != self._hour:
            self._hour = hour
            self._recorded.clear()
        key = (connection.connection_id, use.purpose, use.actor)
        if key in self._recorded:
            return
        await self._record(connection, use=use, action="cloud.use", details={})
        self._recorded.add(key)

    async def _record_call(
        self, connection: connections.Connection, *, use: Use, call: contract.ApiCall
    ) -> None:
        if not use.changes:
            raise ReadingOnly(
                f"{call.name} would have changed something at {connection.name}, while "
                f"{use.purpose} only reads."
            )
        asked_at = self._clock.now()
        await self._record(
            connection,
            use=use,
            action="cloud.call",
            details={"call": call.name, "costs": call.costs},
            fence=_FENCE.get(),
        )
        if (self._clock.now() - asked_at).total_seconds() > providers.STOOD_STILL_SECONDS:
            raise kinds.TryLater(f"{call.name} was not sent: this process stood still.")

    async def _record(
        self,
        connection: connections.Connection,
        *,
        use: Use,
        action: str,
        details: dict[str, object],
        fence: Fence | None = None,
    ) -> None:
        entry = actions.Action(
            at=self._clock.now(),
            actor=use.actor,
            action=action,
            target=connection.name,
            environment=self._environment,
            infra=connection.infra,
            operation=use.operation_id,
            details={
                **details,
                "connection_id": connection.connection_id,
                "provider": connection.provider,
                "principal": connection.principal,
                "purpose": use.purpose,
            },
        )

        async def work(tx: store_contract.Tx) -> None:
            if fence is not None:
                await fence(tx)
            await actions.append(tx, action=entry)

        await self._store.transact(work)
