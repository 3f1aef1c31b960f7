"""Opens a TLS connection to a server that has been authenticated before one byte is written.

API::

    trust = server_trust.ServerTrust(pins=frozenset({"sha256:…"}), ca_pem=None)
    async with await server_trust.open_authenticated(url, trust=trust) as connection:
        connection.reader, connection.writer, connection.leaf, connection.origin

    # With a certificate of the client, shown only to a server that was authenticated before:
    await server_trust.open_authenticated(
        url, trust=trust, client=server_trust.ClientCertificate(pem=chain, key=key_or_none),
        server_name="the name to ask for (SNI), if not the url's", known_der=leaf_met_last_time
    )

For: every leg on which a client has to know to whom it speaks, by the one rule of the design:
by pin, by CA file, or by public roots, in that order. A pin is compared with the leaf alone and
beats the system's roots; names and dates are then not judged. With a CA file the chain must end
in that file and nowhere else, names and dates judged. With both, both must hold. With neither,
the system's roots, names and dates judged. There is no switch to skip it.
With a pin there are two connections: one that only shakes hands (``pinned_handshake``), then one
that trusts the leaf found there and nothing else, whose leaf is compared again after its handshake.
With a certificate of the client, or a name of its own to ask for, it is always so: the first
connection proves the server by the rule above, the second trusts that leaf alone.
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
from pathlib import Path
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


class ClientCertificateUnusable(failures.NetworkFailure):
    """This side's own certificate or key cannot be read; nothing was sent."""

    kind: ClassVar[failures.Kind] = failures.Kind.NEEDS_OPERATOR


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClientCertificate:
    """The files by which this side proves itself."""

    pem: Path
    """The certificate, with its chain and, unless ``key`` says otherwise, its private key."""
    key: Path | None = None


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
    client: ClientCertificate | None = None,
    server_name: str | None = None,
    known_der: bytes | None = None,
    timeout_s: float = 20.0,
    environment: Mapping[str, str] = os.environ,
) -> Connection:
    """Connect to an https origin and make sure who answers, before anything is sent.

    Args:
        url: An https origin.
        trust: By what the server is known.
        client: What this side proves itself with. In TLS 1.3 a server that refuses it says so only
            at the first read (``ssl.SSLError``, or ``link.ClientRefused`` of ``mux``).
        server_name: The name to ask the server for (SNI) instead of the URL's; not judged.
        known_der: The leaf met at an earlier time. Where a pin still matches it, the server is
            asked for it at once, which spares a connection as long as it shows the same.
        timeout_s: Limit on everything together.
        environment: Where proxies are looked up.

    Raises:
        dial.InvalidUrl: Not an https origin.
        dial.DialFailed: No connection, also when ``timeout_s`` for all steps is over.
        dial.ProxyAsksForCredentials, dial.ProxyRefused, dial.ProxyMisconfigured: The proxy.
        pinned_handshake.PinMismatch: Another key than the pinned ones.
        ServerNotTrusted: Chain, name or dates do not hold.
        ClientCertificateUnusable: ``client`` cannot be read.
        pinned_handshake.TlsFailed: No handshake for another reason.
    """
    origin = dial.parse_https_origin(url)
    try:
        async with asyncio.timeout(timeout_s):
            if client is None and server_name is None:
                return await _open(origin, trust=trust, environment=environment)
            second = _Second(client=client, name=server_name or origin.host)
            return await _open_in_two(
                origin, trust=trust, second=second, known_der=known_der, environment=environment
            )
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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Second:
    """What the connection differs in that follows the one by which the server was proved."""

    client: ClientCertificate | None
    name: str

    def context(self, leaf_der: bytes) -> ssl.SSLContext:
        """Trusts that leaf alone and shows this side's certificate."""
        context = tls.trusting_context(leaf_der=leaf_der)
        if self.client is not None:
            try:
                context.load_cert_chain(self.client.pem, self.client.key)
            except OSError as error:  # ssl.SSLError among them
                raise ClientCertificateUnusable(
                    f"{self.client.pem} and its key cannot be used: "
                    f"{error.strerror or type(error).__name__}; nothing was sent"
                ) from error
        return context


async def _open_in_two(
    origin: dial.Origin,
    *,
    trust: ServerTrust,
    second: _Second,
    known_der: bytes | None,
    environment: Mapping[str, str],
) -> Connection:
    if known_der is not None and _is_pinned(known_der, trust=trust):
        # Another leaf may be as good by now: then the long way.
        with contextlib.suppress(ServerNotTrusted, pinned_handshake.TlsFailed):
            return await _open_known(
                origin, leaf_der=known_der, second=second, environment=environment
            )
    leaf_der = await _prove(origin, trust=trust, environment=environment)
    try:
        return await _open_known(origin, leaf_der=leaf_der, second=second, environment=environment)
    except ServerNotTrusted as error:
        raise pinned_handshake.TlsFailed(
            f"{origin.authority} answered with two different certificates in a row"
        ) from error


def _is_pinned(leaf_der: bytes, *, trust: ServerTrust) -> bool:
    """Whether the pins alone say that this leaf is the server's."""
    return trust.ca_pem is None and pinned_handshake.read_leaf(leaf_der).matches(trust.pins)


async def _prove(
    origin: dial.Origin, *, trust: ServerTrust, environment: Mapping[str, str]
) -> bytes:
    """The leaf of a server that is proved by the whole rule; nothing was sent to it."""
    if trust.pins and trust.ca_pem is None:
        with await _dialled(origin, environment=environment) as sock:
            leaf = await pinned_handshake.authenticate_pinned(
                sock, pins=trust.pins, server=origin.authority, host=origin.host
            )
        return leaf.der
    connection = await _open(origin, trust=trust, environment=environment)
    connection.writer.transport.abort()
    return connection.leaf.der


async def _open_known(
    origin: dial.Origin, *, leaf_der: bytes, second: _Second, environment: Mapping[str, str]
) -> Connection:
    context = second.context(leaf_der)
    sock = await _dialled(origin, environment=environment)
    connection = await _secure(sock, origin=origin, context=context, name=second.name)
    if connection.leaf.der != leaf_der:
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
