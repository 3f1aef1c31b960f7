"""One accepted socket: TLS on memory buffers, then a link's wire.

For: little memory. A connection is one object; its TLS buffers stay small because they are fed in
pieces (OpenSSL keeps the largest size they ever had). The anchors of the one client are swapped in
after the server's flight, when its own key is needed no more: making a context with anchors alone
takes a quarter of the time of one that also loads a key, and it is given back after the handshake,
since kept it would cost as much as all the rest of a session.
Not for: deciding how many there may be (``tls_server``).
Known limit: swapping a context in the middle of a handshake rests on TLS 1.3, where the client's
certificate comes after everything the server's key signs; nothing older is spoken.
"""

import asyncio
import contextlib
import dataclasses
import logging
import ssl
from typing import Protocol, cast

from runtime_kit.mux import link, transports

_log = logging.getLogger(__name__)

_PIECE_BYTES = 4_096
_READ_BYTES = 16_384  # a TLS record
_ALERT_S = 1.0  # for a refused client to read why, before the connection breaks

# A ServerHello with this random is a HelloRetryRequest (RFC 8446, 4.1.3): the flight is still to
# come, and with it the need for the server's key. Record and handshake headers and the version
# stand before it.
_RANDOM = slice(11, 43)
_RETRY = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")

# The connection whose handshake goes on at this moment: OpenSSL calls ``note_name`` from within it.
_asking: "list[Connection]" = []


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What a client has proved: it holds the key of this certificate."""

    leaf_der: bytes = dataclasses.field(repr=False)
    address: str


class Host(Protocol):
    """Whoever accepts connections."""

    def context(self) -> ssl.SSLContext:
        """The context a connection begins with and goes back to."""
        ...

    def anchors_for(self, name: str) -> ssl.SSLContext | None:
        """The context that knows just the client of that name."""
        ...

    def stands(self, one: "Connection") -> link.Link:
        """The handshake is complete."""
        ...

    def hand_over(self, made: link.Link, proof: Proof) -> None:
        """Give the link to its user."""
        ...

    def failed(self, error: Exception, address: str) -> None:
        """A handshake came to nothing."""
        ...

    def gone(self, one: "Connection") -> None:
        """The connection is closed."""
        ...


def note_name(
    _tls: ssl.SSLSocket | ssl.SSLObject, name: str | None, _context: ssl.SSLContext
) -> None:
    """For ``SSLContext.sni_callback``: remember the name with the connection that is asking."""
    if name is not None and _asking:
        _asking[-1].note_name(name)


class Connection(asyncio.Protocol):
    """One accepted socket: TLS on memory buffers, then a link's wire."""

    __slots__ = (
        "_handshake_s",
        "_host",
        "_incoming",
        "_name",
        "_outgoing",
        "_over",
        "_timer",
        "_tls",
        "_transport",
        "address",
        "link",
    )

    def __init__(self, host: Host, address: str, *, handshake_s: float) -> None:
        self.address = address
        self.link: link.Link | None = None
        self._host = host
        self._handshake_s = handshake_s
        self._name: str | None = None
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
        self._tls = self._host.context().wrap_bio(self._incoming, self._outgoing, server_side=True)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._handshake_s, self._too_slow)

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
            self._host.failed(error, self.address)
        self._over = True
        self._tls = self._incoming = self._outgoing = self._transport = None
        self._host.gone(self)

    # The link's side.

    def write(self, data: bytes) -> None:
        """Encrypt and send."""
        if self._tls is None or self._outgoing is None or self._transport is None or self._over:
            return
        try:
            if len(data) <= _PIECE_BYTES:
                self._tls.write(data)
                self._transport.write(self._outgoing.read())
                return
            out: list[bytes] = []
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
        except Exception:  # noqa: BLE001 - a fault of ours ends this link rather than leave it deaf
            _log.exception("A connection failed", extra={"peer": self.address})
            self.abort()

    def _shake_hands(self) -> bool:
        """Whether the handshake is complete."""
        if self._tls is None:
            return False
        _asking.append(self)
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._answer_hello()
            return False
        finally:
            _asking.pop()
        self._flush()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        leaf_der = self._tls.getpeercert(binary_form=True) or b""
        self._tls.context = self._host.context()
        self.link = self._host.stands(self)
        self._host.hand_over(self.link, Proof(leaf_der=leaf_der, address=self.address))
        return True

    def _answer_hello(self) -> None:
        """Send the server's flight; from then on only this client's anchors are needed."""
        if self._tls is None or self._outgoing is None or self._transport is None:
            return
        flight = self._outgoing.read()
        if not flight:
            return
        self._transport.write(flight)
        name, self._name = self._name, None
        if name is None or flight[_RANDOM] == _RETRY:
            return
        anchors = self._host.anchors_for(name)
        if anchors is not None:
            self._tls.context = anchors

    def note_name(self, name: str) -> None:
        """The name the client asks for."""
        self._name = name

    def _read(self) -> None:
        """Hand on what can be decrypted, without asking for more than has come in."""
        out: list[bytes] = []
        ended = False
        while self._tls is not None and self._incoming is not None:
            if not self._incoming.pending and not self._tls.pending():
                break
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
        self._host.failed(error, self.address)
        self._linger(_ALERT_S)

    def _too_slow(self) -> None:
        self._timer = None
        if not self._over:
            self._over = True
            self._host.failed(TimeoutError("No handshake in time"), self.address)
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
        if self._transport.is_closing():
            self.abort()
        else:
            self._transport.write_eof()
