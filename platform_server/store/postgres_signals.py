"""Signals between engines over PostgreSQL's LISTEN and NOTIFY, on a connection of its own.

The connection is made when the first signal is sent or listened for, asked for life every few
seconds (a dead network is silent), and made anew with jitter when it is gone; listeners are then
told that they may have missed something. Sending waits for nothing: what cannot be sent is dropped.
A notification is no change of ours, so its commit need not reach the disk.
"""

import asyncio
import collections
import contextlib
import functools
import logging
import random
from typing import Any, Final

import asyncpg

from platform_server.store import signals

_LOG = logging.getLogger(__name__)
_CHANNEL: Final = "enlist"  # one for all: the first word of a message names ours
_CONNECT_SECONDS: Final = 10.0
_ANSWER_SECONDS: Final = 5.0
CHECK_SECONDS: Final = 10.0
_AGAIN_SECONDS: Final = (0.1, 2.0)  # the range of the pause before the connection is made anew
MOST_WAITING: Final = 1000
_BATCH: Final = 100


class PostgresSignals:
    """Sends and hears the signals of one store; bound to one event loop."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._hub = signals.Hub()
        self._outbox: collections.deque[str] = collections.deque(maxlen=MOST_WAITING)
        self._something = asyncio.Event()
        self._chance = random.Random()  # noqa: S311 - spreads retries, guards nothing
        self._task: asyncio.Task[None] | None = None
        self._connected = False
        self._closed = False

    def signal(self, channel: str, payload: str) -> None:
        """Sends it soon, or drops it."""
        signals.check_channel(channel)
        signals.check_payload(payload)
        self._outbox.append(f"{channel} {payload}")
        self._something.set()
        self._ensure_running()

    def listen(self, channel: str, listener: signals.Listener) -> signals.Cancel:
        """Calls the listener for each signal from now on."""
        cancel = self._hub.add(channel, listener)
        self._ensure_running()
        if self._connected:
            loop = asyncio.get_running_loop()
            loop.call_soon(functools.partial(self._hub.tell_missed, listener, channel=channel))
        return cancel

    async def close(self) -> None:
        """Ends the connection; may be repeated."""
        self._closed = True
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def _ensure_running(self) -> None:
        if self._task is None and not self._closed:
            self._task = asyncio.create_task(self._run(), name="store-signals")

    async def _run(self) -> None:
        told = False
        while True:
            try:
                await self._once()
            except Exception as error:  # noqa: BLE001 - nothing is to end what wakes the engines
                if not told:
                    _LOG.warning(
                        "Signals between engines are lost for now, rows are looked for instead",
                        extra={"reason": type(error).__name__},
                    )
                told = True
            else:
                told = False
            await asyncio.sleep(self._chance.uniform(*_AGAIN_SECONDS))

    async def _once(self) -> None:
        """Serves one connection until it is gone."""
        connection = await asyncpg.connect(
            self._url,
            timeout=_CONNECT_SECONDS,
            command_timeout=_ANSWER_SECONDS,
            server_settings={"application_name": "enlist-signals", "synchronous_commit": "off"},
        )
        try:
            connection.add_termination_listener(self._gone)
            await connection.add_listener(_CHANNEL, self._heard)
            self._connected = True
            self._hub.tell_all_missed()
            while not connection.is_closed():
                await self._send(connection)
                await self._wait()
        finally:
            self._connected = False
            connection.terminate()

    async def _send(self, connection: Any) -> None:
        """Sends what waits, or asks the server for a sign of life."""
        self._something.clear()
        batch = [self._outbox.popleft() for _ in range(min(_BATCH, len(self._outbox)))]
        if not batch:
            await connection.fetchval("SELECT 1")
            return
        await connection.execute(
            "SELECT pg_notify($1, one) FROM unnest($2::text[]) AS one", _CHANNEL, batch
        )
        if self._outbox:
            self._something.set()

    async def _wait(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CHECK_SECONDS):
                await self._something.wait()

    def _gone(self, connection: Any) -> None:  # noqa: ARG002 - the library's own signature
        self._something.set()

    def _heard(self, connection: Any, pid: int, channel: str, text: object) -> None:  # noqa: ARG002 - as above
        name, _, payload = str(text).partition(" ")
        if payload:
            self._hub.tell(name, payload)
