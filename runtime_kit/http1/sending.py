"""Sends a body that is too large to hold: piece by piece, as fast as the client takes it.

For: files to strangers. At most a piece and what the transport buffers of it stand in memory; a
client that takes nothing for ``stall_s``, or less than ``least_bytes_s`` over the whole time, or
has not got all within ``transfer_s``, is cut off.
Not for: bodies whose length is not known before the first byte.
Known limit: the source is read in the event loop, so it has to be a local file of a process that
does nothing else.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from runtime_kit.http1 import limits as http_limits

_PIECE_BYTES: Final = 65_536
_LOOK_S: Final = 5.0  # between two looks at the rate
_FIRST_S: Final = 1.0  # a shorter time says nothing of a rate


class Source(Protocol):
    """Where such a body comes from."""

    size: int

    def read(self, most: int) -> bytes:
        """The next bytes, at most that many; empty at the end. Raises `OSError`."""
        ...

    def close(self) -> None:
        """Lets go of it; may be called twice."""
        ...


class Sending:
    """One body on its way out.

    Args:
        source: Closed at the end, whatever that is.
        transport: Where it goes; its head has been written.
        limits: How long the client may take.
        done: Called once when all bytes have left for the system, or with False where the
            connection is to be cut off.
    """

    def __init__(
        self,
        source: Source,
        *,
        transport: asyncio.Transport,
        limits: http_limits.Limits,
        done: Callable[[bool], None],
    ) -> None:
        self._source = source
        self._transport = transport
        self._limits = limits
        self._done = done
        self._left = source.size
        self._clogged = False
        self._scheduled = False
        self._ended = False
        self._loop = asyncio.get_running_loop()
        self._since = self._loop.time()
        self._stall = self._loop.call_later(limits.stall_s, self._end, False)  # noqa: FBT003
        self._slow = self._loop.call_later(limits.least_after_s, self._look_at_rate)
        self._whole = self._loop.call_later(limits.transfer_s, self._end, False)  # noqa: FBT003

    @property
    def rate(self) -> float:
        """How many bytes a second the client has taken, over the whole time."""
        taken = self._source.size - self._left - self._transport.get_write_buffer_size()
        return max(taken, 0) / max(self._loop.time() - self._since, _FIRST_S)

    def start(self) -> None:
        """Sends the first piece."""
        # Low at zero: the client is given more when it has taken all before.
        self._transport.set_write_buffer_limits(high=_PIECE_BYTES, low=0)
        self._go_on()

    def pause(self) -> None:
        """The transport holds enough."""
        self._clogged = True

    def resume(self) -> None:
        """The transport holds nothing any more."""
        self._clogged = False
        self._go_on()

    def stop(self) -> None:
        """The connection is gone."""
        self._finish()

    def _go_on(self) -> None:
        """Not at once: others have their turn between two pieces."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._send_piece)

    def _send_piece(self) -> None:
        self._scheduled = False
        if self._ended or self._clogged:
            return
        if self._left == 0:
            if self._transport.get_write_buffer_size() == 0:
                self._end(True)  # noqa: FBT003
            else:
                self._transport.set_write_buffer_limits(high=0)  # resume once it is empty
            return
        try:
            piece = self._source.read(min(self._left, _PIECE_BYTES))
        except OSError:
            piece = b""
        if not piece:  # shorter than was promised: only a broken connection says so
            self._end(False)  # noqa: FBT003
            return
        self._left -= len(piece)
        self._stall.cancel()
        self._stall = self._loop.call_later(self._limits.stall_s, self._end, False)  # noqa: FBT003
        self._transport.write(piece)
        self._go_on()

    def _look_at_rate(self) -> None:
        if self.rate < self._limits.least_bytes_s:
            self._end(False)  # noqa: FBT003
        else:
            self._slow = self._loop.call_later(_LOOK_S, self._look_at_rate)

    def _end(self, whole: bool) -> None:  # noqa: FBT001 - a timer passes arguments by place
        if not self._ended:
            self._finish()
            if whole:
                self._transport.set_write_buffer_limits()
            self._done(whole)

    def _finish(self) -> None:
        self._ended = True
        self._stall.cancel()
        self._slow.cancel()
        self._whole.cancel()
        self._source.close()
