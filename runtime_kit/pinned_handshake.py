"""The handshake in which a client authenticates a server by its public key alone.

API::

    leaf = await pinned_handshake.authenticate_pinned(sock, pins=pins, server="host:8444")
    leaf.der, leaf.pin, leaf.fingerprint, leaf.not_before, leaf.not_after

For: a pin that is compared inside the handshake, in the verify callback, so that a server with
another key sees the handshake fail and never a byte of ours. The pin is compared with the leaf,
depth 0, the key that signs the handshake; whatever else the server presents counts for nothing,
neither for nor against it. Names and dates are not judged.
Not for: sending anything. The socket is spent afterwards; ``server_trust`` opens the next one,
which trusts this leaf alone.
Known limit: TLS 1.3 only, like our own servers.
"""

import asyncio
import dataclasses
import datetime
import hashlib
import ipaddress
import socket
from typing import ClassVar

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from OpenSSL import SSL, crypto

from runtime_kit import failures, foreign_certificates

_MAX_HANDSHAKE_BYTES = 262_144  # a long chain is some 20 KiB
_READ_BYTES = 16_384
_MAX_SHOWN = 4


class TlsFailed(failures.NetworkFailure):
    """The handshake came to nothing: broken off, silent, or not TLS 1.3."""


class PinMismatch(failures.NetworkFailure):
    """The server's key is not the pinned one; nothing was sent. A person must find out why."""

    kind: ClassVar[failures.Kind] = failures.Kind.NEEDS_OPERATOR

    def __init__(self, *, expected: frozenset[str], got: str, server: str) -> None:
        self.expected = expected
        self.got = got
        wanted = " or ".join(sorted(expected)[:_MAX_SHOWN])
        super().__init__(
            f"{server} is not the expected server: expected {wanted}, got {got}; "
            "was the Platform's key rotated? Nothing was sent"
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """A server's own certificate, as it was presented in a handshake."""

    der: bytes = dataclasses.field(repr=False)
    pin: str
    """``sha256:`` of the public key (SPKI)."""
    fingerprint: str
    """``sha256:`` of the whole certificate."""
    not_before: datetime.datetime
    not_after: datetime.datetime

    def matches(self, pins: frozenset[str]) -> bool:
        """Whether one of the pins is this key's or this very certificate's."""
        return self.pin in pins or self.fingerprint in pins


def read_leaf(der: bytes) -> Leaf:
    """Read a certificate and compute what it can be pinned by.

    Raises:
        ValueError: It is no certificate, or its key is of an unknown kind.
    """
    with foreign_certificates.translated():
        certificate = x509.load_der_x509_certificate(der)
        spki = certificate.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        return Leaf(
            der=der,
            pin=f"sha256:{hashlib.sha256(spki).hexdigest()}",
            fingerprint=_fingerprint(der),
            not_before=certificate.not_valid_before_utc,
            not_after=certificate.not_valid_after_utc,
        )


def _fingerprint(der: bytes) -> str:
    return f"sha256:{hashlib.sha256(der).hexdigest()}"


async def authenticate_pinned(
    sock: socket.socket,
    *,
    pins: frozenset[str],
    server: str,
    host: str | None = None,
    timeout_s: float = 10.0,
) -> Leaf:
    """Shake hands over a connected socket and prove that the server holds a pinned key.

    Args:
        sock: From ``dial.dial``; the caller closes it. Nothing but the handshake crosses it.
        pins: ``sha256:`` and 64 lower-case hex digits, of the key or of the certificate.
        server: How messages name the server.
        host: The name to ask for (SNI), if it is a name.
        timeout_s: Limit on the whole handshake.

    Raises:
        PinMismatch: Another key; the handshake failed and nothing was sent.
        TlsFailed: No handshake; trying again may help.
    """
    judge = _Judge(pins)
    context = SSL.Context(SSL.TLS_CLIENT_METHOD)
    context.set_min_proto_version(SSL.TLS1_3_VERSION)
    context.set_verify(SSL.VERIFY_PEER, judge)
    connection = SSL.Connection(context, None)
    connection.set_connect_state()
    try:
        if host is not None and _is_name(host):
            connection.set_tlsext_host_name(host.encode("idna"))
        async with asyncio.timeout(timeout_s):
            await _shake_hands(sock, connection=connection)
    except TimeoutError as error:
        raise TlsFailed(f"{server} did not finish the TLS handshake in {timeout_s:g} s") from error
    except (SSL.Error, OSError, ValueError) as error:
        if judge.got is not None and not judge.accepted:
            raise PinMismatch(expected=pins, got=judge.got, server=server) from error
        raise TlsFailed(f"{server} does not speak TLS 1.3 as it must: {_reason(error)}") from error
    # The callback is what stops the handshake; this only makes sure that it was asked.
    if judge.seen is None or not judge.accepted:
        raise TlsFailed(f"{server} finished the handshake without a certificate")
    return judge.seen


class _Judge:
    """OpenSSL's verify callback: true for the pinned leaf, and no opinion on anything above it."""

    def __init__(self, pins: frozenset[str]) -> None:
        self._pins = pins
        self.seen: Leaf | None = None
        self.got: str | None = None
        self.accepted = False

    def __call__(
        self,
        _connection: SSL.Connection,
        certificate: crypto.X509,
        _error: int,
        depth: int,
        _ok: int,
    ) -> bool:
        if depth != 0:
            return True
        der = crypto.dump_certificate(crypto.FILETYPE_ASN1, certificate)
        try:
            leaf = read_leaf(der)
        except ValueError:
            self.got = f"a certificate that cannot be read ({_fingerprint(der)})"
            return False
        self.seen, self.got = leaf, leaf.pin
        self.accepted = leaf.matches(self._pins)
        return self.accepted


async def _shake_hands(sock: socket.socket, *, connection: SSL.Connection) -> None:
    loop = asyncio.get_running_loop()
    received = 0
    while True:
        try:
            connection.do_handshake()
        except SSL.WantReadError:
            await _flush(sock, connection=connection)
        except SSL.Error:
            await _flush(sock, connection=connection)  # the alert that says why
            raise
        else:
            await _flush(sock, connection=connection)
            return
        data = await loop.sock_recv(sock, _READ_BYTES)
        received += len(data)
        if not data:
            raise ConnectionResetError("closed by the server")
        if received > _MAX_HANDSHAKE_BYTES:
            raise ConnectionAbortedError("the handshake is too long")
        connection.bio_write(data)


async def _flush(sock: socket.socket, *, connection: SSL.Connection) -> None:
    while True:
        try:
            data = connection.bio_read(_READ_BYTES)
        except SSL.WantReadError:
            return
        await asyncio.get_running_loop().sock_sendall(sock, data)


def _reason(error: Exception) -> str:
    if isinstance(error, SSL.Error):
        entries = error.args[0] if error.args and isinstance(error.args[0], list) else []
        return ", ".join(str(entry[-1]) for entry in entries[:2]) or type(error).__name__
    return str(error) or type(error).__name__


def _is_name(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return True
    return False
