"""Opens a TLS connection to a server that has been authenticated before one byte is written.

API::

    trust = server_trust.ServerTrust(pins=frozenset({"sha256:…"}), ca_pem=None)
    async with await server_trust.open_authenticated(url, trust=trust) as connection:
        connection.reader, connection.writer, connection.leaf, connection.origin

For: every leg on which a client has to know to whom it speaks, by the one rule of the design:
by pin, by CA file, or by public roots, in that order. A pin is compared with the leaf alone and
beats the system's roots; names and dates are then not judged. With a CA file the chain must end
in that file and nowhere else, names and dates judged. With both, both must hold. With neither,
the system's roots, names and dates judged. There is no switch to skip it.
With a pin there are two connections: one that only shakes hands (``pinned_handshake``), then one
that trusts the leaf found there and nothing else, whose leaf is compared again after its handshake.
Not for: HTTP (see ``http1``).
Known limit: a server that shows different keys by turns needs all of them pinned and may have to
be asked again.
"""

import asyncio
import contextlib
import dataclasses
import os
import socket
import ssl
from collections.abc import Mapping
from types import TracebackType
from typing import ClassVar, Self

from runtime_kit import dial, failures, pinned_handshake, tls

_STREAM_BYTES = 65_536
_CLOSE_S = 1.0  # how long a close_notify may take; nothing depends on it


class ServerNotTrusted(failures.NetworkFailure):
    """Chain, name or dates of the server's certificate do not hold; nothing was sent."""

    kind: ClassVar[failures.Kind] = failures.Kind.NEEDS_OPERATOR


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ServerTrust:
    """By what a server is known; without any of the two, by the system's roots."""

    pins: frozenset[str] = frozenset()
    """``sha256:`` and 64 lower-case hex digits, of keys or of whole certificates."""
    ca_pem: str | None = dataclasses.field(default=None, repr=False)
    """The certificates of the CA file."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """An open TLS connection; as a context manager it closes itself."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    leaf: pinned_handshake.Leaf
    origin: dial.Origin

    async def close(self) -> None:
        """Close, waiting a second at most for the other side."""
        self.writer.close()
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self.writer.wait_closed()
        except (OSError, TimeoutError):
            self.writer.transport.abort()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        await self.close()


async def open_authenticated(
    url: str,
    *,
    trust: ServerTrust,
    timeout_s: float = 20.0,
    environment: Mapping[str, str] = os.environ,
) -> Connection:
    """Connect to an https origin and make sure who answers, before anything is sent.

    Raises:
        dial.InvalidUrl: Not an https origin.
        dial.DialFailed: No connection, also when ``timeout_s`` for all steps is over.
        dial.ProxyAsksForCredentials, dial.ProxyRefused, dial.ProxyMisconfigured: The proxy.
        pinned_handshake.PinMismatch: Another key than the pinned ones.
        ServerNotTrusted: Chain, name or dates do not hold.
        pinned_handshake.TlsFailed: No handshake for another reason.
    """
    origin = dial.parse_https_origin(url)
    try:
        async with asyncio.timeout(timeout_s):
            return await _open(origin, trust=trust, environment=environment)
    except TimeoutError as error:
        raise dial.DialFailed(
            f"{origin.authority} did not answer within {timeout_s:g} s"
        ) from error


async def open_unauthenticated(
    url: str, *, timeout_s: float = 20.0, environment: Mapping[str, str] = os.environ
) -> Connection:
    """Connect without asking who answers.

    For one question only: the empty trust question, whose answer is believed by its signature
    (Design, rule 2). Never write a secret or anything about this machine to it.

    Raises:
        As ``open_authenticated``, without the refusals that judge the server.
    """
    origin = dial.parse_https_origin(url)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        async with asyncio.timeout(timeout_s):
            sock = await dial.dial(origin.host, port=origin.port, environment=environment)
            return await _secure(sock, origin=origin, context=context, name=origin.host)
    except TimeoutError as error:
        raise dial.DialFailed(
            f"{origin.authority} did not answer within {timeout_s:g} s"
        ) from error


async def open_mutual(
    url: str,
    *,
    context: ssl.SSLContext,
    server_certificate_pem: str,
    server_name: str | None = None,
    timeout_s: float = 10.0,
    environment: Mapping[str, str] = os.environ,
) -> Connection:
    """Connect with a client certificate to a server whose certificate is known to the byte.

    Args:
        url: An https origin.
        context: From ``tls.mutual_client_context`` for that same certificate.
        server_certificate_pem: Compared again after the handshake, before anything is written.
        server_name: The name to ask for (SNI), if it is not the URL's host.
        timeout_s: Limit on everything together.
        environment: Where proxies are looked up.

    Raises:
        As ``open_authenticated``. In TLS 1.3 a server that refuses the client's certificate says
        so only at the first read (``ssl.SSLError``).
    """
    origin = dial.parse_https_origin(url)
    try:
        async with asyncio.timeout(timeout_s):
            sock = await _dialled(origin, environment=environment)
            connection = await _secure(
                sock, origin=origin, context=context, name=server_name or origin.host
            )
    except TimeoutError as error:
        raise dial.DialFailed(
            f"{origin.authority} did not answer within {timeout_s:g} s"
        ) from error
    if connection.leaf.der != ssl.PEM_cert_to_DER_cert(server_certificate_pem.strip() + "\n"):
        connection.writer.transport.abort()
        raise ServerNotTrusted(f"{origin.authority} showed another certificate than the known one")
    return connection


async def _open(
    origin: dial.Origin, *, trust: ServerTrust, environment: Mapping[str, str]
) -> Connection:
    pinned: pinned_handshake.Leaf | None = None
    if trust.pins:
        with await _dialled(origin, environment=environment) as sock:
            pinned = await pinned_handshake.authenticate_pinned(
                sock, pins=trust.pins, server=origin.authority, host=origin.host
            )
    context = _context(trust, pinned=pinned)
    sock = await _dialled(origin, environment=environment)
    try:
        connection = await _secure(sock, origin=origin, context=context, name=origin.host)
    except ServerNotTrusted as error:
        if pinned is None or trust.ca_pem is not None:
            raise
        # The first handshake has just matched, so another key answers on this address now.
        raise pinned_handshake.TlsFailed(
            f"{origin.authority} answered with two different certificates in a row"
        ) from error
    if pinned is not None and connection.leaf.der != pinned.der:
        connection.writer.transport.abort()
        raise pinned_handshake.TlsFailed(
            f"{origin.authority} answered with two different certificates in a row"
        )
    return connection


async def _dialled(origin: dial.Origin, *, environment: Mapping[str, str]) -> socket.socket:
    return await dial.dial(origin.host, port=origin.port, environment=environment)


def _context(trust: ServerTrust, *, pinned: pinned_handshake.Leaf | None) -> ssl.SSLContext:
    if trust.ca_pem is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2  # may be other people's TLS
        try:
            context.load_verify_locations(cadata=trust.ca_pem)
        except (ssl.SSLError, ValueError) as error:
            raise ServerNotTrusted("The CA file does not hold PEM certificates") from error
        return context
    if pinned is not None:
        return tls.trusting_context(leaf_der=pinned.der)
    return ssl.create_default_context()


async def _secure(
    sock: socket.socket, *, origin: dial.Origin, context: ssl.SSLContext, name: str
) -> Connection:
    try:
        reader, writer = await asyncio.open_connection(
            sock=sock, ssl=context, server_hostname=name, limit=_STREAM_BYTES
        )
    except ssl.SSLCertVerificationError as error:
        sock.close()
        raise ServerNotTrusted(
            f"{origin.authority} could not be authenticated: {error.verify_message}; "
            "nothing was sent"
        ) from error
    except (OSError, ValueError) as error:  # a name that is none is a ValueError
        sock.close()
        reason = getattr(error, "reason", None) or str(error) or type(error).__name__
        raise pinned_handshake.TlsFailed(
            f"{origin.authority} broke off the TLS handshake: {reason}"
        ) from error
    except BaseException:
        sock.close()
        raise
    with contextlib.ExitStack() as undo:
        undo.callback(writer.transport.abort)
        der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        try:
            leaf = pinned_handshake.read_leaf(der or b"")
        except ValueError as error:
            raise pinned_handshake.TlsFailed(
                f"{origin.authority} showed a certificate that cannot be read"
            ) from error
        undo.pop_all()
    return Connection(reader=reader, writer=writer, leaf=leaf, origin=origin)
