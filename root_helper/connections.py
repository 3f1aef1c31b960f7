"""Who is let in at the helper's socket: two accounts, a few connections of each.

Where the process has no room for another connection it pauses and goes on: whoever fills it up
delays itself, and ends neither the helper nor a change of release that is under way. Known limit:
an account that has its few connections open at all times is the only one that it puts off.
"""

import asyncio
import contextlib
import errno
import logging
import socket

from root_helper import refusals, requests
from runtime_kit import clock as clock_kit
from wire_protocol import helper_protocol as helper

LOGGER = logging.getLogger(__name__)
MOST_OF_ONE = 4  # fewer than the threads in which requests are read
PAUSE_SECONDS = 0.2
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS)
_GONE_AGAIN = errno.ECONNABORTED


class Connections:
    """The connections that are open, counted by account."""

    def __init__(self, *, peers: frozenset[int], clock: clock_kit.Clock) -> None:
        self._peers = peers
        self._clock = clock
        self._open: dict[int, int] = {}

    async def accept(self, listener: socket.socket, *, seconds: float) -> socket.socket | None:
        """The next one; None after so long without one for which there was room."""
        try:
            async with asyncio.timeout(seconds):
                while True:
                    try:
                        connection, _ = await asyncio.get_running_loop().sock_accept(listener)
                    except OSError as error:
                        if error.errno not in (*_NO_ROOM, _GONE_AGAIN):
                            raise
                        LOGGER.warning("A connection could not be taken: %s", error.strerror)
                        await self._clock.sleep(PAUSE_SECONDS)
                    else:
                        return connection
        except TimeoutError:
            return None

    def let_in(self, connection: socket.socket) -> int | None:
        """Whose it is, if it is to be served; else it has been told why not, and closed."""
        try:
            uid = requests.peer_of(connection)
            self._require_welcome(uid)
        except refusals.Refused as refused:
            LOGGER.warning("Refused (%s): %s", refused.code.value, refused)
            line = helper.write_refusal(refused.code.value, str(refused))
            with connection, contextlib.suppress(OSError):  # it may be gone: nobody to be told
                connection.send(line, socket.MSG_DONTWAIT)
            return None
        except OSError as error:
            connection.close()
            LOGGER.info("A request broke off: %s", error)
            return None
        self._open[uid] = self._open.get(uid, 0) + 1
        return uid

    def ended(self, uid: int) -> None:
        """One that was let in has been closed."""
        self._open[uid] -= 1

    def _require_welcome(self, uid: int) -> None:
        if uid not in self._peers:
            raise refusals.Refused(
                refusals.Code.NOT_PERMITTED,
                f"The root helper serves the Agent, and not uid {uid}.",
            )
        if self._open.get(uid, 0) >= MOST_OF_ONE:
            raise refusals.Refused(
                refusals.Code.BUSY, f"uid {uid} has {MOST_OF_ONE} requests under way already."
            )
