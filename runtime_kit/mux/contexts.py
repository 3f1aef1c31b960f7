"""TLS contexts for the server's side of links, by which a client proves a certificate of its own.

API::

    contexts.without_anchors(pem_file)      the server's key, and every client fails
    contexts.of_anchors([der, …])           just these certificates, and no key

For: a server that knows its clients by their certificates, one by one. An anchor is a certificate
itself (partial chain), no dates are judged, TLS 1.3 alone, no tickets, hence no resumption.
Not for: authorities that certify clients (``tls.mutual_server_context``).
Known limit: a certificate that is an anchor would also vouch for others it has signed, if it may
sign; compare the leaf after the handshake byte by byte.
"""

import ssl
from collections.abc import Iterable
from pathlib import Path

from runtime_kit import tls

_NO_CHECK_TIME = 0x200000  # X509_V_FLAG_NO_CHECK_TIME, which the ssl module does not name


def without_anchors(pem_file: Path, *, key: Path | None = None) -> ssl.SSLContext:
    """A context by which no client gets in.

    Flags stay with a connection when its context is swapped, anchors do not; so this one has all
    the flags.

    Raises:
        OSError: As ``tls.server_context``.
    """
    context = tls.server_context(pem_file, key=key)
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags |= ssl.VerifyFlags(_NO_CHECK_TIME)
    return context


def of_anchors(ders: Iterable[bytes]) -> ssl.SSLContext:
    """What is swapped in to judge the client's certificate.

    Raises:
        ssl.SSLError: One of them is no certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_verify_locations(cadata=b"".join(ders))
    return context
