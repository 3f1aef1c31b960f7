"""The server: accepts sockets, counts them before their handshake, and has requests answered.

A socket counts from the moment it is accepted. When ``limits.sockets`` are open, the oldest
without a complete head makes room; if each has its head, the oldest that still owes its body
does; if none does, the newcomer is turned away. So slow strangers cost one another, not those who
speak. Where ``limits.sockets_by_address`` is set no address holds more than its part, and a full
server cuts off the slowest transfer of the address that holds the most.
A request takes one of ``limits.in_work`` places only once it is complete.
Not for: binding ports. The socket comes from outside and is never closed here, so that a
successor, or a neighbour process, goes on accepting from it.
Known limit: one event loop; several processes share a port by sharing the socket.
"""

import asyncio
import collections
import contextlib
import errno
import ipaddress
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable

from runtime_kit.http1 import limits as http_limits
from runtime_kit.http1 import messages, server_connection

_log = logging.getLogger(__name__)

_ACCEPTS_A_TURN = 32  # so that a flood of connects does not starve those already there
_NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_PAUSE_S = 0.1  # until descriptors may be free again
_FRESH_S = 1.0  # how long a drain waits for those who have connected and not yet spoken

Handler = Callable[[messages.Request], Awaitable[messages.Response]]
BeforeBody = Callable[[messages.Head], messages.Response | None]
Preface = Callable[[socket.socket, str], Awaitable[str]]
Refusal = Callable[[int], messages.Response]
HandshakeFailed = Callable[[OSError, str], None]


class Server:
    """Serves one handler on any number of listening sockets.

    Args:
        handler: Answers a complete request. An exception becomes an empty 500 and a log entry.
        limits: What is allowed.
        tls: Asked for a context at each accept, so that a renewed certificate or anchor is
            served to the next connection; None serves plain HTTP.
        before_body: Refuses a request by its head alone; None lets it pass.
        preface: Reads what comes before TLS (a PROXY header) from the raw socket and returns the
            caller's address; an ``OSError`` closes the connection. Bounded by ``handshake_s``.
        refusal: Makes the answers of the server's own refusals: 400, 413, 417, 431, 500, 503.
        handshake_failed: Told of each failed handshake and the caller's address; an unknown
            client authority is an ``ssl.SSLCertVerificationError``.
    """

    def __init__(
        self,
        handler: Handler,
        *,
        limits: http_limits.Limits | None = None,
        tls: Callable[[], ssl.SSLContext] | None = None,
        before_body: BeforeBody | None = None,
        preface: Preface | None = None,
        refusal: Refusal | None = None,
        handshake_failed: HandshakeFailed | None = None,
    ) -> None:
        self.limits = limits or http_limits.Limits()
        self.draining = False
        self.evicted = 0
        """How many sockets were closed, or turned away, for want of room."""
        self._handler = handler
        self._tls = tls
        self._before_body = before_body
        self._preface = preface
        self._refusal = refusal
        self._handshake_failed = handshake_failed
        self._places = asyncio.Semaphore(self.limits.in_work)
        # Dictionaries keep the order of arrival: the first is the oldest.
        self._open: dict[server_connection.Connection, str] = {}
        """With whose each is: an address, of IPv6 a /64."""
        self._held: collections.Counter[str] = collections.Counter()
        self._evictable: dict[server_connection.Connection, None] = {}
        self._working: set[asyncio.Task[None]] = set()
        self._listening: list[socket.socket] = []
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    @property
    def sockets(self) -> int:
        """How many sockets are open."""
        return len(self._open)

    def start(self, sock: socket.socket) -> None:
        """Begin to accept from a bound, listening socket, which stays the caller's."""
        sock.setblocking(False)  # noqa: FBT003 - the call's form
        self._listening.append(sock)
        self._loop.add_reader(sock.fileno(), self._accept, sock)

    async def drain(self, *, timeout_s: float) -> None:
        """Accept no more, finish what is in work, close everything; bounded."""
        self.draining = True
        for sock in self._listening:
            self._loop.remove_reader(sock.fileno())
        self._listening.clear()
        for connection in [one for one in self._open if not one.busy]:
            connection.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(_FRESH_S, timeout_s)):
                await self._until(lambda: not any(one.busy for one in self._open))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, timeout_s - _FRESH_S)):
                await self._until(lambda: not any(one.in_work for one in self._open))
        for connection in list(self._open):
            connection.abort()
        for task in self._working:
            task.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await asyncio.gather(*self._working, return_exceptions=True)
                await self._until(lambda: not self._open)

    # What a connection asks of its server.

    def judge(self, head: messages.Head) -> messages.Response | None:
        """Refuse a request before its body is read."""
        return None if self._before_body is None else self._before_body(head)

    def refusal(self, status: int) -> messages.Response:
        """The answer to what the server itself refuses."""
        if self._refusal is not None:
            return self._refusal(status)
        headers = {"retry-after": str(self.limits.retry_after_s)} if status == 503 else {}
        return messages.Response(status=status, headers=headers)

    def work(
        self, request: messages.Request, *, connection: server_connection.Connection
    ) -> asyncio.Task[None]:
        """Have the request answered in a task of its own."""
        task = self._loop.create_task(
            self._work(request, connection=connection), name="http1-request"
        )
        self._working.add(task)
        task.add_done_callback(self._worked)
        return task

    def head_pending(self, connection: server_connection.Connection, *, pending: bool) -> None:
        """Whether the connection may be closed to make room."""
        if pending:
            self._evictable[connection] = None
        else:
            self._evictable.pop(connection, None)
        self._changed.set()

    def gone(self, connection: server_connection.Connection) -> None:
        """The socket is closed."""
        holder = self._open.pop(connection, None)
        if holder is not None:
            self._held[holder] -= 1
            if not self._held[holder]:
                del self._held[holder]
        self._evictable.pop(connection, None)
        self._changed.set()

    def _worked(self, task: asyncio.Task[None]) -> None:
        self._working.discard(task)
        self._changed.set()

    async def _work(
        self, request: messages.Request, *, connection: server_connection.Connection
    ) -> None:
        connection.answer(await self._answer(request, connection=connection))

    async def _answer(
        self, request: messages.Request, *, connection: server_connection.Connection
    ) -> messages.Response:
        if self._places.locked():
            try:
                async with asyncio.timeout(self.limits.place_s):
                    await self._places.acquire()
            except TimeoutError:
                return self.refusal(503)
        else:
            await self._places.acquire()
        connection.placed = True
        try:
            async with asyncio.timeout(self.limits.work_s):
                return await self._handler(request)
        except TimeoutError:
            return self.refusal(503)
        except Exception:  # noqa: BLE001 - one request's fault ends that request, not the server
            _log.exception("Handler failed")
            return self.refusal(500)
        finally:
            self._places.release()

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
            sock.setblocking(False)  # noqa: FBT003 - the call's form
            peer = peer_of(address)
            holder = holder_of(peer)
            if not self._has_room(holder):
                self.evicted += 1
                sock.close()
                continue
            connection = server_connection.Connection(self, peer=peer)
            self._open[connection] = holder
            self._held[holder] += 1
            self._evictable[connection] = None
            connection.establishing = self._loop.create_task(
                self._establish(sock, connection=connection), name="http1-accept"
            )

    def _has_room(self, holder: str) -> bool:
        """Whether a newcomer from there may stay; others may have been closed for it."""
        part = self.limits.sockets_by_address
        full = part is not None and self._held[holder] >= part
        if full and not self._close_one(self._oldest_without_request(holder)):
            return False
        if len(self._open) < self.limits.sockets:
            return True
        if self._make_room():
            return True
        return part is not None and self._close_one(self._slowest(than=holder))

    def _make_room(self) -> bool:
        return self._close_one(self._oldest_without_request())

    def _oldest_without_request(
        self, holder: str | None = None
    ) -> server_connection.Connection | None:
        def counts(one: server_connection.Connection) -> bool:
            return holder is None or self._open[one] == holder

        oldest = next((one for one in self._evictable if counts(one)), None)
        if oldest is None:
            oldest = next((one for one in self._open if not one.complete and counts(one)), None)
        return oldest

    def _slowest(self, *, than: str) -> server_connection.Connection | None:
        """The slowest transfer of whoever holds the most, if that is more than `than` holds."""
        most = max(self._held.values(), default=0)
        if most <= self._held[than]:
            return None
        rates = [
            (rate, number, one)
            for number, (one, holder) in enumerate(self._open.items())
            if self._held[holder] == most and (rate := one.rate) is not None
        ]
        return min(rates, default=(0.0, 0, None))[2]

    def _close_one(self, one: server_connection.Connection | None) -> bool:
        if one is None:
            return False
        self.evicted += 1
        self.gone(one)  # counts as gone now, though its socket closes a moment later
        one.abort()
        return True

    def _pause_accepting(self, listening: socket.socket) -> None:
        self._loop.remove_reader(listening.fileno())
        self._make_room()

        def resume() -> None:
            if not self.draining:
                self._loop.add_reader(listening.fileno(), self._accept, listening)

        self._loop.call_later(_PAUSE_S, resume)

    async def _establish(
        self, sock: socket.socket, *, connection: server_connection.Connection
    ) -> None:
        established = False
        try:
            if self._preface is not None:
                async with asyncio.timeout(self.limits.handshake_s):
                    connection.peer = await self._preface(sock, connection.peer)
            if self._tls is None:
                await self._loop.connect_accepted_socket(lambda: connection, sock)
            else:
                await self._loop.connect_accepted_socket(
                    lambda: connection,
                    sock,
                    ssl=self._tls(),
                    ssl_handshake_timeout=self.limits.handshake_s,
                    ssl_shutdown_timeout=self.limits.close_s,
                )
            established = True
        except OSError as error:  # TimeoutError and every TLS error among them
            if self._handshake_failed is not None:
                self._handshake_failed(error, connection.peer)
        finally:
            connection.establishing = None
            if not established:
                sock.close()
                self.gone(connection)

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()


def holder_of(peer: str) -> str:
    """Who holds a socket: the address, of IPv6 the /64, which is one customer's."""
    if ":" not in peer:
        return peer
    return str(ipaddress.IPv6Network((peer, 64), strict=False))


def peer_of(address: object) -> str:
    """The IP address of a socket's other end in its plain form; empty on a Unix socket.

    IPv4 seen through an IPv6 socket becomes IPv4; a scope (``%eth0``) is left out.
    """
    if not isinstance(address, tuple) or not address:
        return ""
    host = str(address[0]).partition("%")[0]
    if not host.startswith("::ffff:"):
        return host
    mapped = ipaddress.ip_address(host)
    inner = mapped.ipv4_mapped if isinstance(mapped, ipaddress.IPv6Address) else None
    return host if inner is None else str(inner)
