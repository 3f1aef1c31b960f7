"""The server's side of links: mutual TLS over raw TCP with little memory and bounded handshakes.

API::

    acceptor = tls_server.accept_tls(
        sock,                                   # bound and listening; stays the caller's
        default=lambda: context,                # contexts.without_anchors(…), asked at each accept
        context_for=choose,                     # server name → contexts.for_certificates(…) or None
        opened=opened,                          # (link, proof): proof.leaf_der, proof.address
        answer=answer,
        limits=tls_server.Limits(handshakes=64),
        handshake_failed=note,                  # (error, address); optional
    )
    acceptor.links, acceptor.handshaking, acceptor.turned_away
    acceptor.stop()                             # accept no more; links stay
    await acceptor.finish(timeout_s=5.0)        # wait for links that were closed, abort the rest

For: tens of thousands of idle sessions in one process. A connection is one object, TLS works on
memory buffers that are kept small by feeding them in pieces, and the context with a client's
anchors is given back after the handshake, so that none is kept for a session. Strangers are
bounded: so many handshakes at once, so many by one address, each so many seconds; who comes
meanwhile waits unread, in turn by address, or is turned away.
Not for: deciding about a client beyond its certificate: ``opened`` closes the link again.
Known limit: one event loop; several processes share the socket.
"""

import asyncio
import collections
import contextlib
import dataclasses
import errno
import ipaddress
import logging
import socket
import ssl
from collections.abc import Callable
from typing import cast

from runtime_kit import clock as clock_kit
from runtime_kit.http1 import server as http_server
from runtime_kit.mux import connection, link, transports

_log = logging.getLogger(__name__)

_PIECE_BYTES = 4_096
"""TLS buffers keep the size of the largest piece they held, for the life of a connection."""
_READ_BYTES = 16_384  # a TLS record
_ACCEPTS_A_TURN = 32  # so that a flood of connects does not starve those already there
_PAUSE_S = 0.1  # until descriptors may be free again
_NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_ALERT_S = 1.0  # for a refused client to read why, before the connection breaks


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What strangers may cost, and how many sessions there may be."""

    sessions: int = 20_000
    handshakes: int = 64
    handshakes_per_address: int = 16
    waiting: int = 1_024
    waiting_per_address: int = 256
    handshake_s: float = 5.0
    waiting_s: float = 10.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What a client has proved: it holds the key of this certificate."""

    leaf_der: bytes = dataclasses.field(repr=False)
    address: str


ContextFor = Callable[[str], ssl.SSLContext | None]
Opened = Callable[[link.Link, Proof], None]
HandshakeFailed = Callable[[Exception, str], None]


def accept_tls(
    *socks: socket.socket,
    default: Callable[[], ssl.SSLContext],
    context_for: ContextFor,
    opened: Opened,
    answer: link.Answer | None = None,
    limits: Limits | None = None,
    link_limits: connection.Limits | None = None,
    handshake_failed: HandshakeFailed | None = None,
    clock: clock_kit.Clock | None = None,
) -> "Acceptor":
    """Begin to accept links from bound, listening sockets.

    Args:
        socks: Stay the caller's; a successor may go on accepting from them.
        default: The context each handshake begins with, ``contexts.without_anchors``.
        context_for: By the name the client asks for: the context with that client's anchors,
            or None, then the handshake fails. Called inside the handshake: look up, do not wait.
        opened: A link stands. Set its ``answer``, ``on_end``, ``owner`` here, or close it; its
            first question is read only afterwards.
        answer: The answer new links begin with.
        limits: What strangers may cost.
        link_limits: The limits new links begin with, narrow for a client not yet confirmed.
        handshake_failed: Told of each handshake that came to nothing.
        clock: For ``Link.heard_at``.
    """
    acceptor = Acceptor(
        default=default,
        context_for=context_for,
        opened=opened,
        answer=answer,
        limits=limits or Limits(),
        link_limits=link_limits,
        handshake_failed=handshake_failed,
        clock=clock,
    )
    for sock in socks:
        acceptor.start(sock)
    return acceptor


class Acceptor:
    """Accepts, bounds the handshakes, and knows the links that stand."""

    def __init__(
        self,
        *,
        default: Callable[[], ssl.SSLContext],
        context_for: ContextFor,
        opened: Opened,
        answer: link.Answer | None,
        limits: Limits,
        link_limits: connection.Limits | None,
        handshake_failed: HandshakeFailed | None,
        clock: clock_kit.Clock | None,
    ) -> None:
        self.limits = limits
        self.turned_away = 0
        """How many connections were closed at once for want of room."""
        self._default = default
        self._context_for = context_for
        self._opened = opened
        self._answer = answer
        self._link_limits = link_limits
        self._handshake_failed = handshake_failed
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._listening: list[socket.socket] = []
        self._shaking: dict[_Connection, str] = {}
        self._shaking_by: collections.Counter[str] = collections.Counter()
        self._waiting: dict[str, collections.deque[tuple[socket.socket, str, float]]] = {}
        self._waiting_count = 0
        self._open: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._emptied: asyncio.Event = asyncio.Event()

    @property
    def links(self) -> list[link.Link]:
        """Those that stand."""
        return [one.link for one in self._open if one.link is not None and one.link.ended is None]

    @property
    def handshaking(self) -> int:
        """How many handshakes are going on."""
        return len(self._shaking)

    @property
    def waiting(self) -> int:
        """How many connections wait for their handshake."""
        return self._waiting_count

    def start(self, sock: socket.socket) -> None:
        """Accept from one more socket."""
        sock.setblocking(False)  # noqa: FBT003 - the call's form
        self._listening.append(sock)
        self._loop.add_reader(sock.fileno(), self._accept, sock)

    def stop(self) -> None:
        """Accept no more and give up what has not finished its handshake; links stay."""
        for sock in self._listening:
            self._loop.remove_reader(sock.fileno())
        self._listening.clear()
        for queue in self._waiting.values():
            for sock, _, _ in queue:
                sock.close()
        self._waiting.clear()
        self._waiting_count = 0
        for one in list(self._shaking):
            one.abort()

    async def finish(self, *, timeout_s: float) -> None:
        """After ``stop`` and the links' closes: wait for the rest, then abort it."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._empty()
        except TimeoutError:
            for one in [*self._open, *self._shaking]:
                one.abort()
            async with asyncio.timeout(1.0):
                await self._empty()

    # What a connection asks of its acceptor.

    def begin_tls(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO) -> ssl.SSLObject:
        """TLS for one more connection."""
        context = self._default()
        context.sni_callback = self._choose
        return context.wrap_bio(incoming, outgoing, server_side=True)

    def default(self) -> ssl.SSLContext:
        """The context a connection begins with and goes back to."""
        return self._default()

    def stands(self, one: "_Connection") -> link.Link:
        """The handshake is complete."""
        self._leave(one)
        self._open.add(one)
        made = link.Link(
            peer=one.address,
            dialled=False,
            answer=self._answer,
            limits=self._link_limits,
            clock=self._clock,
        )
        made.begin(one)
        return made

    def hand_over(self, made: link.Link, proof: Proof) -> None:
        """Give the link to its user."""
        try:
            self._opened(made, proof)
        except Exception:  # noqa: BLE001 - one link's fault ends that link, not the server
            _log.exception("A new link was not taken", extra={"peer": proof.address})
            made.close(reason="The server failed")

    def failed(self, error: Exception, address: str) -> None:
        """A handshake came to nothing."""
        if self._handshake_failed is not None:
            self._handshake_failed(error, address)

    def gone(self, one: "_Connection") -> None:
        """The connection is closed."""
        self._open.discard(one)
        self._leave(one)
        if not self._open and not self._shaking:
            self._emptied.set()

    # Inside.

    def _choose(
        self, tls: ssl.SSLSocket | ssl.SSLObject, name: str | None, _context: ssl.SSLContext
    ) -> int | None:
        try:
            chosen = None if name is None else self._context_for(name)
        except Exception:  # noqa: BLE001 - ends this handshake, not the server
            _log.exception("No context could be chosen")
            return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR
        if chosen is not None:
            tls.context = chosen
        return None

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_ACCEPTS_A_TURN):
            try:
                sock, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _NO_DESCRIPTORS:
                    raise
                self._pause_accepting(listening)
                return
            self._place(sock, http_server.peer_of(address))

    def _pause_accepting(self, listening: socket.socket) -> None:
        self._loop.remove_reader(listening.fileno())

        def resume() -> None:
            if listening in self._listening:
                self._loop.add_reader(listening.fileno(), self._accept, listening)

        self._loop.call_later(_PAUSE_S, resume)

    def _place(self, sock: socket.socket, address: str) -> None:
        network = network_of(address)
        if len(self._open) + len(self._shaking) + self._waiting_count >= self.limits.sessions:
            self._turn_away(sock)
        elif len(self._shaking) < self.limits.handshakes and self._has_room(network):
            self._begin(sock, address, network)
        elif self._waiting_count >= self.limits.waiting:
            self._turn_away(sock)
        else:
            queue = self._waiting.setdefault(network, collections.deque())
            if len(queue) >= self.limits.waiting_per_address:
                self._turn_away(sock)
                return
            queue.append((sock, address, self._loop.time()))
            self._waiting_count += 1

    def _has_room(self, network: str) -> bool:
        return self._shaking_by[network] < self.limits.handshakes_per_address

    def _turn_away(self, sock: socket.socket) -> None:
        self.turned_away += 1
        sock.close()

    def _begin(self, sock: socket.socket, address: str, network: str) -> None:
        sock.setblocking(False)  # noqa: FBT003 - the call's form
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transports.keep_little_unsent(sock)
        one = _Connection(self, address)
        self._shaking[one] = network
        self._shaking_by[network] += 1
        task = self._loop.create_task(self._connect(sock, one), name="link accepts")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, sock: socket.socket, one: "_Connection") -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: one, sock)
        except OSError as error:
            sock.close()
            self.failed(error, one.address)
            self.gone(one)

    def _leave(self, one: "_Connection") -> None:
        """A handshake is over; the next of those that wait begins."""
        network = self._shaking.pop(one, None)
        if network is None:
            return
        self._shaking_by[network] -= 1
        if not self._shaking_by[network]:
            del self._shaking_by[network]
        while self._waiting and len(self._shaking) < self.limits.handshakes:
            # At most handshakes / handshakes_per_address addresses are at their cap at once.
            following = next((each for each in self._waiting if self._has_room(each)), None)
            if following is None:
                return
            queue = self._waiting.pop(following)
            sock, address, since = queue.popleft()
            self._waiting_count -= 1
            if queue:
                self._waiting[following] = queue  # behind the other addresses
            if self._loop.time() - since > self.limits.waiting_s:
                self._turn_away(sock)
            else:
                self._begin(sock, address, following)

    async def _empty(self) -> None:
        while self._open or self._shaking:
            self._emptied.clear()
            await self._emptied.wait()


class _Connection(asyncio.Protocol):
    """One accepted socket: TLS on memory buffers, then a link's wire."""

    __slots__ = (
        "_acceptor",
        "_incoming",
        "_outgoing",
        "_over",
        "_timer",
        "_tls",
        "_transport",
        "address",
        "link",
    )

    def __init__(self, acceptor: Acceptor, address: str) -> None:
        self.address = address
        self.link: link.Link | None = None
        self._acceptor = acceptor
        self._transport: asyncio.Transport | None = None
        self._tls: ssl.SSLObject | None = None
        self._incoming: ssl.MemoryBIO | None = None
        self._outgoing: ssl.MemoryBIO | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._over = False  # whatever comes in now is thrown away

    # asyncio's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake; the client speaks first."""
        # uvloop's transports are no subclasses of asyncio's.
        self._transport = raw = cast("asyncio.Transport", transport)
        raw.set_write_buffer_limits(high=transports.UNSENT_BYTES)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = self._acceptor.begin_tls(self._incoming, self._outgoing)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._acceptor.limits.handshake_s, self._too_slow)

    def data_received(self, data: bytes) -> None:
        """Encrypted bytes, in pieces that keep the buffers small."""
        if len(data) <= _PIECE_BYTES:
            self._feed(data)
            return
        for at in range(0, len(data), _PIECE_BYTES):
            self._feed(data[at : at + _PIECE_BYTES])

    def pause_writing(self) -> None:
        """The kernel has enough."""
        if self.link is not None:
            self.link.pause()

    def resume_writing(self) -> None:
        """The kernel has sent what it had."""
        if self.link is not None:
            self.link.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.link is not None:
            said = "closed the connection" if exc is None else f"broke off: {exc}"
            self.link.lost(f"{self.address} {said}")
        elif not self._over:
            error = exc or ConnectionResetError("The connection was closed in the handshake")
            self._acceptor.failed(error, self.address)
        self._over = True
        self._tls = self._incoming = self._outgoing = self._transport = None
        self._acceptor.gone(self)

    # The link's side.

    def write(self, data: bytes) -> None:
        """Encrypt and send."""
        if self._tls is None or self._outgoing is None or self._transport is None or self._over:
            return
        out: list[bytes] = []
        try:
            for at in range(0, len(data), _PIECE_BYTES):
                self._tls.write(data[at : at + _PIECE_BYTES])
                out.append(self._outgoing.read())
        except ssl.SSLError:
            self.abort()
            return
        self._transport.write(b"".join(out))

    def close(self, *, within_s: float) -> None:
        """Say so, then wait for the other side to close, so that it can read what was said."""
        if self._over or self._transport is None:
            return
        self._over = True
        self._say_close()
        self._linger(within_s)

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    # Inside.

    def _feed(self, data: bytes) -> None:
        if self._over or self._incoming is None:
            return
        self._incoming.write(data)
        try:
            if self.link is None and not self._shake_hands():
                return
            self._read()
        except ssl.SSLError as error:
            self._broken(error)

    def _shake_hands(self) -> bool:
        """Whether the handshake is complete."""
        if self._tls is None:
            return False
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        self._flush()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        leaf_der = self._tls.getpeercert(binary_form=True) or b""
        # The context with this client's anchors is needed no more; kept, it would cost more
        # memory than all the rest of the session.
        self._tls.context = self._acceptor.default()
        self.link = self._acceptor.stands(self)
        self._acceptor.hand_over(self.link, Proof(leaf_der=leaf_der, address=self.address))
        return True

    def _read(self) -> None:
        out: list[bytes] = []
        ended = False
        while self._tls is not None:
            try:
                piece = self._tls.read(_READ_BYTES)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                piece = b""
            if not piece:
                ended = True
                break
            out.append(piece)
        if out and self.link is not None:
            self.link.received(out[0] if len(out) == 1 else b"".join(out))
        if ended and self.link is not None:
            self.link.lost(f"{self.address} closed the connection")

    def _broken(self, error: ssl.SSLError) -> None:
        """TLS failed: let the other side read the alert."""
        self._flush()
        if self.link is not None:
            self.link.lost(f"{self.address} broke off: {error.reason or error}")
            return
        self._over = True
        self._acceptor.failed(error, self.address)
        self._linger(_ALERT_S)

    def _too_slow(self) -> None:
        self._timer = None
        if not self._over:
            self._over = True
            self._acceptor.failed(TimeoutError("No handshake in time"), self.address)
        self.abort()

    def _flush(self) -> None:
        if self._outgoing is not None and self._transport is not None and self._outgoing.pending:
            self._transport.write(self._outgoing.read())

    def _say_close(self) -> None:
        if self._tls is not None:
            with contextlib.suppress(ssl.SSLError):  # it wants the other side's, too
                self._tls.unwrap()
        self._flush()

    def _linger(self, seconds: float) -> None:
        if self._transport is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self.abort)
        try:
            self._transport.write_eof()
        except OSError:
            self.abort()


def network_of(address: str) -> str:
    """IPv4 by the address, IPv6 by its /64, since one customer usually holds all of that."""
    if ":" not in address:
        return address
    whole = int(ipaddress.IPv6Address(address)) >> 64 << 64
    return str(ipaddress.IPv6Address(whole))
