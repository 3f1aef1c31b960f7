"""What the enrollment benches share: tokens, certificates and the bodies to send."""

import datetime
import json
import urllib.parse
from typing import Any

import httpx
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from bench import limits
from tests.support import real_platform
from wire_protocol import product


def certificate() -> str:
    """A self-signed P-256 certificate as a machine makes it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bench")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=30))
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM).decode()


def bodies(platform: real_platform.RealPlatform, *, count: int, prefix: str) -> list[str]:
    """Issues that many tokens and returns the enroll requests that spend them."""
    requests = []
    transport = httpx.HTTPTransport(uds=str(platform.socket))
    with httpx.Client(transport=transport, base_url="http://platform", timeout=30) as client:
        for number in range(count):
            node_id = f"{prefix}-{number}"
            answer = client.post(f"{product.API_PREFIX}/enrollments", json={"node_id": node_id})
            answer.raise_for_status()
            requests.append(
                json.dumps(
                    {
                        "node_id": node_id,
                        "token": answer.json()["token"],
                        "certificate_pem": certificate(),
                        "version": product.VERSION,
                    }
                )
            )
    return requests


def job(
    platform: real_platform.RealPlatform, *, requests: list[str], in_flight: int
) -> dict[str, Any]:
    """The load job that sends these requests to the Platform's listener."""
    parts = urllib.parse.urlsplit(platform.enrollment_url)
    return {
        "host": parts.hostname,
        "port": parts.port,
        "trusted_pem": _served_certificate(str(parts.hostname), int(parts.port or 0)),
        "in_flight": in_flight,
        "path": product.ENROLL_PATH,
        "bodies": requests,
    }


def send(
    platform: real_platform.RealPlatform, *, requests: list[str], in_flight: int
) -> dict[str, Any]:
    """Sends the requests; every one of them must be answered with 201."""
    answer = limits.run_load(job(platform, requests=requests, in_flight=in_flight))
    assert answer["statuses"] == {"201": len(requests)}, answer["statuses"]
    return answer


def _served_certificate(host: str, port: int) -> str:
    import ssl  # noqa: PLC0415 - only to fetch what the bench then trusts

    return ssl.get_server_certificate((host, port), timeout=10)
