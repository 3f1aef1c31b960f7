"""What a link runs over: asyncio's streams, and memory.

API::

    link = transports.over_streams(reader, writer, peer="host:8445", answer=answer)
    pair = transports.in_memory_pair(answer_left=…, answer_right=…)
    left, right = pair              # left is the side that dialled
    pair.cut()                      # both ends notice at once
    pair.blackhole()                # nothing arrives any more, and nobody notices
    pair.heal()                     # what was under way arrives after all, as TCP has it

For: the client's side, where a link has two tasks to spare, and tests and simulations, where the
pair is the network. Not for: servers of many links (``tls_server``).
Known limit: the pair never pushes back; its bytes arrive at the loop's next turn.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Iterator

from runtime_kit import clock as clock_kit
from runtime_kit.mux import connection, link

_log = logging.getLogger(__name__)

READ_BYTES = 65_536
UNSENT_BYTES = 32_768
"""More than this is not given to the kernel ahead, so that what is urgent overtakes it."""

_MAX_HELD = 10_000  # pieces; a simulation asks no more than that of a silent network

_CLOSING: set[asyncio.Task[None]] = set()
_CERTIFICATE_ALERTS = ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED", "UNRECOGNIZED_NAME")


def over_streams(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    *,
    peer: str,
    answer: link.Answer | None = None,
    dialled: bool = True,
    limits: connection.Limits | None = None,
    clock: clock_kit.Clock | None = None,
) -> link.Link:
    """A link over an open connection, which it closes when it ends.

    In TLS 1.3 a server that refuses the client's certificate says so only now: then everything
    that was asked raises ``link.ClientRefused``.
    """
    made = link.Link(peer=peer, dialled=dialled, answer=answer, limits=limits, clock=clock)
    writer.transport.set_write_buffer_limits(high=UNSENT_BYTES)
    keep_little_unsent(writer.get_extra_info("socket"))
    made.begin(_Streams(made, reader, writer))
    return made


def keep_little_unsent(sock: object) -> None:
    """Ask the kernel to report the socket as full early; without effect where it cannot."""
    if isinstance(sock, socket.socket) or hasattr(sock, "setsockopt"):
        with contextlib.suppress(OSError, AttributeError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)


def is_certificate_refusal(error: BaseException | None) -> bool:
    """Whether a TLS error is the server's alert about the client's certificate."""
    if not isinstance(error, ssl.SSLError):
        return False
    reason = (error.reason or str(error)).upper()
    return "ALERT" in reason and any(name in reason for name in _CERTIFICATE_ALERTS)


class _Streams:
    """The wire over a pair of streams: one task reads, another waits while the kernel is full."""

    def __init__(
        self, owner: link.Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._link = owner
        self._reader = reader
        self._writer = writer
        self._draining: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._reading = self._loop.create_task(self._read(), name=f"link to {owner.peer}")

    def write(self, data: bytes) -> None:
        """Send, and ask for no more while too much is unsent."""
        self._writer.write(data)
        if self._draining is None and (
            self._writer.transport.get_write_buffer_size() > UNSENT_BYTES
        ):
            self._link.pause()
            self._draining = self._loop.create_task(self._drain(), name="link drains")

    def close(self, *, within_s: float) -> None:
        """Send what was written and close, or abort."""
        if self._draining is not None:
            self._draining.cancel()
        _CLOSING.add(self._reading)  # nothing else holds it from here on
        self._reading.add_done_callback(_CLOSING.discard)
        self._writer.close()
        abort = self._loop.call_later(within_s, self._writer.transport.abort)
        self._reading.add_done_callback(lambda _task: abort.cancel())

    async def _read(self) -> None:
        try:
            while data := await self._reader.read(READ_BYTES):
                self._link.received(data)
            self._link.lost(f"{self._link.peer} closed the connection")
        except ssl.SSLError as error:
            said = error.reason or str(error)
            if is_certificate_refusal(error):
                text = f"{self._link.peer} refused this client's certificate: {said}"
                self._link.lost(text, client_refused=True)
            else:
                self._link.lost(f"{self._link.peer} broke off: {said}")
        except OSError as error:
            said = error.strerror or type(error).__name__
            self._link.lost(f"{self._link.peer} broke off: {said}")
        except Exception:  # noqa: BLE001 - a fault of ours ends this link rather than leave it deaf
            _log.exception("A link failed", extra={"peer": self._link.peer})
        finally:
            self._link.lost("The link was given up")  # nothing, if it has ended

    async def _drain(self) -> None:
        try:
            await self._writer.drain()
        except OSError:
            return  # the reader tells why
        finally:
            self._draining = None
        self._link.resume()


class InMemoryPair:
    """Two links joined without sockets; unpacks into both ends."""

    def __init__(self, left: link.Link, right: link.Link) -> None:
        self.left = left
        self.right = right
        self._held: list[tuple[link.Link, bytes]] | None = None  # while nothing passes
        self._joined = True
        left.begin(_Memory(self, right))
        right.begin(_Memory(self, left))

    def __iter__(self) -> Iterator[link.Link]:
        return iter((self.left, self.right))

    def cut(self, *, reason: str = "The connection was cut") -> None:
        """The connection breaks; both ends are told."""
        self._joined = False
        self.left.lost(reason)
        self.right.lost(reason)

    def blackhole(self) -> None:
        """From now on nothing arrives at either end, a close neither."""
        if self._held is None:
            self._held = []

    def heal(self) -> None:
        """Bytes pass again, those first that were under way."""
        held, self._held = self._held or [], None
        for to, data in held:
            self.carry(to, data)

    def carry(self, to: link.Link, data: bytes) -> None:
        """Deliver bytes, or the end for empty ones."""
        if not self._joined:
            return
        if self._held is not None:
            if len(self._held) < _MAX_HELD:
                self._held.append((to, data))
            return
        if data:
            to.received(data)
        elif to.ended is None:
            to.lost("The other side closed the connection")


class _Memory:
    """The wire of one end of a pair."""

    __slots__ = ("_pair", "_to")

    def __init__(self, pair: InMemoryPair, to: link.Link) -> None:
        self._pair = pair
        self._to = to

    def write(self, data: bytes) -> None:
        """Arrives at the loop's next turn."""
        asyncio.get_running_loop().call_soon(self._pair.carry, self._to, data)

    def close(self, *, within_s: float) -> None:  # noqa: ARG002 - nothing has to be waited for
        """The other end notices after everything that was written."""
        asyncio.get_running_loop().call_soon(self._pair.carry, self._to, b"")


def in_memory_pair(
    *,
    answer_left: link.Answer | None = None,
    answer_right: link.Answer | None = None,
    peer_left: str = "left",
    peer_right: str = "right",
    limits: connection.Limits | None = None,
    clock: clock_kit.Clock | None = None,
) -> InMemoryPair:
    """Two joined links. ``peer_left`` is how the right end names the left one."""
    left = link.Link(peer=peer_right, dialled=True, answer=answer_left, limits=limits, clock=clock)
    right = link.Link(
        peer=peer_left, dialled=False, answer=answer_right, limits=limits, clock=clock
    )
    return InMemoryPair(left, right)
