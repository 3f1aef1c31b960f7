"""What anybody sees of a Platform's gateway from outside, and what trust statements say of it."""

import base64
import json
import socket
import ssl
import urllib.parse
from collections.abc import Mapping
from typing import Any

import httpx
from cryptography import x509

from tests.support import real_platform
from wire_protocol import pins

_SECONDS = 40.0  # an engine that starts on a loaded machine


def leaf(url: str, *, server_name: str = "stranger") -> x509.Certificate:
    """The certificate that the port at this URL shows to whoever asks."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with (
        socket.create_connection(place(url), _SECONDS) as raw,
        context.wrap_socket(raw, server_hostname=server_name) as secured,
    ):
        der = secured.getpeercert(binary_form=True)
    assert der is not None
    return x509.load_der_x509_certificate(der)


def pin(url: str) -> str:
    """The pin of the key that the port serves with."""
    return pins.pin_of_certificate(leaf(url))


def place(url: str) -> tuple[str, int]:
    """Host and port of a URL."""
    parts = urllib.parse.urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    return parts.hostname, parts.port


def names(certificate: x509.Certificate) -> set[str]:
    """The names and addresses that the certificate is for."""
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {str(name.value) for name in found}


def trust(platform: real_platform.RealPlatform) -> dict[str, Any]:
    """The answer to the trust question."""
    with httpx.Client(verify=False) as client:  # noqa: S501 - as anybody would ask
        where = platform.said["enrollment"] or platform.said["api"]
        answer = client.post(f"{where}/api/v1/trust", json={})
    assert answer.status_code == 200
    document = answer.json()
    assert isinstance(document, dict)
    return document


def statement(platform: real_platform.RealPlatform) -> dict[str, Any]:
    """What the Platform's present statement says."""
    return read_statement(trust(platform))


def read_statement(holder: Mapping[str, Any]) -> dict[str, Any]:
    """What the statement in an answer or in a trust.json says."""
    document = json.loads(base64.b64decode(holder["statement"]))
    assert isinstance(document, dict)
    return document
