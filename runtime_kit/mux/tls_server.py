"""The server's side of links: mutual TLS over raw TCP with little memory and bounded handshakes.

API::

    acceptor = tls_server.accept_tls(
        sock,                                   # bound and listening; stays the caller's
        default=lambda: context,                # contexts.without_anchors(…), asked at each accept
        anchors_for=look_up,                    # server name → that client's certificates, as DER
        opened=opened,                          # (link, proof): proof.leaf_der, proof.address
        answer=answer,
        limits=tls_server.Limits(handshakes=64),
        handshake_failed=note,                  # (error, address); optional
    )
    acceptor.links, acceptor.sessions, acceptor.handshaking, acceptor.waiting, acceptor.turned_away
    acceptor.stop()                             # accept no more; links stay
    await acceptor.finish(timeout_s=5.0)        # wait for links that were closed, abort the rest

For: tens of thousands of idle sessions in one process, each known by a certificate of its own.
Whoever connects names himself by SNI and gets in only with one of the certificates looked up under
that name: one look-up, whatever the number of clients. Strangers are bounded: so many handshakes at
once, so many by one address, each so many seconds; who comes meanwhile waits unread, in turn by
address, or is turned away.
Not for: deciding about a client beyond its certificate: ``opened`` closes the link again.
Known limit: one event loop; several processes share the socket.
"""

import asyncio
import collections
import dataclasses
import errno
import ipaddress
import logging
import socket
import ssl
from collections.abc import Callable, Sequence

from runtime_kit import clock as clock_kit
from runtime_kit.http1 import server as http_server
from runtime_kit.mux import connection, contexts, link, tls_wire, transports

_log = logging.getLogger(__name__)

_ACCEPTS_A_TURN = 32  # so that a flood of connects does not starve those already there
_PAUSE_S = 0.1  # until descriptors may be free again
_LAST_HANDSHAKES_S = 1.0  # for those accepted before the end; the silent hold it up no longer
_NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


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


AnchorsFor = Callable[[str], Sequence[bytes]]
Opened = Callable[[link.Link, tls_wire.Proof], None]
HandshakeFailed = Callable[[Exception, str], None]


def accept_tls(
    *socks: socket.socket,
    default: Callable[[], ssl.SSLContext],
    anchors_for: AnchorsFor,
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
        anchors_for: The certificates one of which the client must show, by the name it asks for
            (SNI); none: the handshake fails. Called inside the handshake: look up, do not wait.
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
        anchors_for=anchors_for,
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
        anchors_for: AnchorsFor,
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
        self._anchors_for = anchors_for
        self._opened = opened
        self._answer = answer
        self._link_limits = link_limits
        self._handshake_failed = handshake_failed
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._listening: list[socket.socket] = []
        self._shaking: dict[tls_wire.Connection, str] = {}
        self._shaking_by: collections.Counter[str] = collections.Counter()
        self._waiting: dict[str, collections.deque[tuple[socket.socket, str, float]]] = {}
        self._waiting_count = 0
        self._open: set[tls_wire.Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._emptied: asyncio.Event = asyncio.Event()

    @property
    def links(self) -> list[link.Link]:
        """Those that stand."""
        return [one.link for one in self._open if one.link is not None and one.link.ended is None]

    @property
    def sessions(self) -> int:
        """How many connections stand, those included that are on their way out."""
        return len(self._open)

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
        """Accept no more; links stay, and who is in his handshake has a second to finish it."""
        for sock in self._listening:
            self._loop.remove_reader(sock.fileno())
        self._listening.clear()
        self._loop.call_later(_LAST_HANDSHAKES_S, self._give_up)

    def _give_up(self) -> None:
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
            self._give_up()
            for one in list(self._open):
                one.abort()
            async with asyncio.timeout(1.0):
                await self._empty()

    # What a connection asks of its acceptor.

    def context(self) -> ssl.SSLContext:
        """The context a connection begins with and goes back to."""
        context = self._default()
        context.sni_callback = tls_wire.note_name
        return context

    def anchors_for(self, name: str) -> ssl.SSLContext | None:
        """The context that knows just the client of that name."""
        try:
            ders = self._anchors_for(name)
            return contexts.of_anchors(ders) if ders else None
        except Exception:  # noqa: BLE001 - ends this handshake, not the server
            _log.exception("A client could not be looked up")
            return None

    def stands(self, one: tls_wire.Connection) -> link.Link:
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

    def hand_over(self, made: link.Link, proof: tls_wire.Proof) -> None:
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

    def gone(self, one: tls_wire.Connection) -> None:
        """The connection is closed."""
        self._open.discard(one)
        self._leave(one)
        if not self._open and not self._shaking:
            self._emptied.set()

    # Inside.

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
        one = tls_wire.Connection(self, address, handshake_s=self.limits.handshake_s)
        self._shaking[one] = network
        self._shaking_by[network] += 1
        task = self._loop.create_task(self._connect(sock, one), name="link accepts")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, sock: socket.socket, one: tls_wire.Connection) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: one, sock)
        except OSError as error:  # the default context's own among them
            sock.close()
            self.failed(error, one.address)
            self.gone(one)

    def _leave(self, one: tls_wire.Connection) -> None:
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


def network_of(address: str) -> str:
    """IPv4 by the address, IPv6 by its /64, since one customer usually holds all of that."""
    if ":" not in address:
        return address
    whole = int(ipaddress.IPv6Address(address)) >> 64 << 64
    return str(ipaddress.IPv6Address(whole))
