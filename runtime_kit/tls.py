"""TLS contexts for our own servers and for both ends of mutual TLS, from the standard library.

API::

    tls.server_context(pem_file)                     a server with one key, TLS 1.3 only
    tls.mutual_server_context(pem_file, …)           … that asks for a client certificate
    tls.mutual_client_context(pem_file, …)           a client of one known server certificate
    tls.trusting_context(leaf_der=…)                 the same without a certificate of its own
    tls.check_client_certificate(ssl_object, uri=…)  who is it; after the handshake
    tls.peer_leaf_der(ssl_object)                    the other side's certificate

For: TLS 1.3, no session tickets (they cost more than they save here and could resume past a
revocation), P-256 keys chosen by whoever makes the files.
Not for: deciding whom a client believes at a first contact: that is ``server_trust``.
Known limit: anchors given once stay for the life of a context; whoever rotates them makes a new
context and hands it to the next connection (``http1.Server`` asks for one at each accept).
"""

import ssl
from pathlib import Path
from typing import ClassVar

from runtime_kit import failures

# X509_V_FLAG_NO_CHECK_TIME of OpenSSL's x509_vfy.h; the ssl module gives it no name.
_NO_CHECK_TIME = 0x200000


class ClientNotTrusted(failures.NetworkFailure):
    """The client's certificate is genuine but not the one that may speak here."""

    kind: ClassVar[failures.Kind] = failures.Kind.PERMANENT


def server_context(pem_file: Path, *, key: Path | None = None) -> ssl.SSLContext:
    """A server's context from its certificate chain and its private key, in one file or in two.

    Raises:
        OSError: The file cannot be read, or does not hold a key and its certificate
            (``ssl.SSLError`` is an ``OSError``).
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0
    context.load_cert_chain(pem_file, key)
    return context


def mutual_server_context(
    pem_file: Path, *, anchors_pem: str, key: Path | None = None
) -> ssl.SSLContext:
    """A server that completes a handshake only with a client certified by one of the anchors.

    Without an anchor every client is refused. The dates of the client's certificate are judged.
    What the certificate is for is judged afterwards by ``check_client_certificate``.
    """
    context = server_context(pem_file, key=key)
    context.verify_mode = ssl.CERT_REQUIRED
    if anchors_pem:
        context.load_verify_locations(cadata=anchors_pem)
    return context


def mutual_client_context(
    pem_file: Path, *, server_certificate_pem: str, key: Path | None = None
) -> ssl.SSLContext:
    """A client that shows its certificate to, and believes, exactly one server certificate.

    Names and dates of the server's certificate are not judged, since it is known by its bytes.
    Compare ``peer_leaf_der`` after the handshake, before writing, all the same.
    """
    context = _one_certificate_context(server_certificate_pem)
    context.load_cert_chain(pem_file, key)
    return context


def trusting_context(*, leaf_der: bytes) -> ssl.SSLContext:
    """A client that believes exactly one server certificate, whatever its names and dates."""
    return _one_certificate_context(ssl.DER_cert_to_PEM_cert(leaf_der))


def peer_leaf_der(ssl_object: ssl.SSLObject | ssl.SSLSocket) -> bytes:
    """The certificate whose key signed the handshake, as DER.

    Raises:
        ClientNotTrusted: There is none.
    """
    der = ssl_object.getpeercert(binary_form=True)
    if not der:
        raise ClientNotTrusted("The other side showed no certificate")
    return der


def check_client_certificate(ssl_object: ssl.SSLObject | ssl.SSLSocket, *, uri: str) -> None:
    """Make sure that the client's certificate is meant for clients and carries this one URI.

    The chain was checked in the handshake (``mutual_server_context``); without this check any
    certificate by the same authority would do.

    Raises:
        ClientNotTrusted: Not so; answer nothing and close.
    """
    # Here, so that a server without client certificates never loads the library.
    from cryptography import x509  # noqa: PLC0415
    from cryptography.x509 import oid  # noqa: PLC0415

    from runtime_kit import foreign_certificates  # noqa: PLC0415

    der = peer_leaf_der(ssl_object)
    try:
        with foreign_certificates.translated():
            extensions = x509.load_der_x509_certificate(der).extensions
            usages = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
            names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    except (x509.ExtensionNotFound, ValueError) as error:
        raise ClientNotTrusted("The client's certificate does not say what it is for") from error
    if oid.ExtendedKeyUsageOID.CLIENT_AUTH not in usages:
        raise ClientNotTrusted("The client's certificate is not meant for clients")
    if uris != [uri]:
        raise ClientNotTrusted(f"The client's certificate is not that of {uri}")


def _one_certificate_context(certificate_pem: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags |= ssl.VerifyFlags(_NO_CHECK_TIME)
    context.load_verify_locations(cadata=certificate_pem)
    return context
