"""The TLS keys of our own ports and their self-signed certificates.

The key is the identity that machines pin: made once, sealed in the store, the same for every
engine. The certificate is renewed with that key when it nears its end, when the names change, or
when it is not valid yet, so the pin stays. Changing the key itself is the operator's decision
(`rotate`): the next key's pin is published beside the present one until the switch.

Known limit: a machine that authenticates by a CA file made from the certificate itself, not by
pin, needs the new certificate when the names change.
"""

import dataclasses
import datetime
import hashlib
import ipaddress
import json
from collections.abc import Sequence
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import oid

from platform_server.audit import events
from platform_server.sealing import envelope, sealed_rows
from platform_server.store import contract
from platform_server.trust import key_usage
from runtime_kit import clock
from wire_protocol import pins, times

ENROLLMENT: Final = "enrollment"
GATEWAY: Final = "gateway"
API: Final = "api"
LIFETIME: Final = datetime.timedelta(days=365)
BACKDATED: Final = datetime.timedelta(hours=1)
RENEWED_BEFORE_END: Final = datetime.timedelta(days=30)
_LOCK: Final = "port-certificates"
_MOST_COMMON_NAME: Final = 64  # X.520 ub-common-name


class RotationUnderWay(Exception):
    """A next TLS key is published already and waits for its day: let it come first."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PortIdentity:
    """What a port serves with, and what machines are told to expect."""

    key_pem: bytes = dataclasses.field(repr=False)
    certificate_pem: str
    pin: pins.Pin
    fingerprint: pins.Pin
    next_pin: pins.Pin | None
    switch_at: datetime.datetime | None
    not_after: datetime.datetime
    was_not_yet_valid: bool = False

    @property
    def pins(self) -> tuple[pins.Pin, ...]:
        """The pin that is served, and the one that will be."""
        return (self.pin,) if self.next_pin is None else (self.pin, self.next_pin)

    def pem_file_content(self) -> bytes:
        """Key and certificate, as the listener's file holds them."""
        return self.key_pem + self.certificate_pem.encode("ascii")


async def ensure(
    tx: contract.Tx,
    *,
    port: str,
    names: Sequence[str],
    keyring: envelope.Keyring,
    now: datetime.datetime,
) -> PortIdentity:
    """The identity of the port, with what is due done first: key, switch, certificate.

    `was_not_yet_valid` tells that the stored certificate began in the future: some clock was or is
    wrong, and the operator should hear of it (lesson A4).
    """
    await tx.lock(_LOCK)
    next_key, switch_at = await _find_next(tx, port=port, keyring=keyring)
    if next_key is not None and switch_at is not None and switch_at <= now:
        await sealed_rows.put(
            tx, keyring=keyring, name=_key_name(port), value=_pem_of(next_key), now=now
        )
        await _forget_next(tx, port=port)
        await events.append(
            tx,
            at=now,
            kind="platform.tls-key-switched",
            subject=port,
            data={"pin": _pin_of(next_key)},
        )
        next_key, switch_at = None, None
    key = await _ensure_key(tx, port=port, keyring=keyring, now=now)
    certificate, early = await _ensure_certificate(tx, port=port, names=names, key=key, now=now)
    return PortIdentity(
        key_pem=_pem_of(key),
        certificate_pem=certificate.public_bytes(serialization.Encoding.PEM).decode("ascii"),
        pin=pins.pin_of_certificate(certificate),
        fingerprint=pins.fingerprint_of_certificate(certificate),
        next_pin=None if next_key is None else _pin_of(next_key),
        switch_at=switch_at,
        not_after=certificate.not_valid_after_utc,
        was_not_yet_valid=early,
    )


async def rotate(
    tx: contract.Tx,
    *,
    port: str,
    keyring: envelope.Keyring,
    switch_at: datetime.datetime,
    now: datetime.datetime,
) -> pins.Pin:
    """Makes the port's next key and sets the moment of its switch; gives its pin.

    `ensure` carries the switch out when the moment has come. Raises `RotationUnderWay`.
    """
    await tx.lock(_LOCK)
    present, present_switch = await _find_next(tx, port=port, keyring=keyring)
    if present is not None and present_switch is not None and switch_at >= present_switch:
        raise RotationUnderWay(
            f"The next key of the {port} port is published already and is switched to at "
            f"{times.to_rfc3339(present_switch)}. It can only be brought forward."
        )
    key = present if present is not None else ec.generate_private_key(ec.SECP256R1())
    await sealed_rows.put(tx, keyring=keyring, name=_next_name(port), value=_pem_of(key), now=now)
    await tx.execute(
        "INSERT INTO platform_values(name, value) VALUES (?, ?) "
        "ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        _switch_name(port),
        str(clock.to_micros(switch_at)),
    )
    return _pin_of(key)


async def _ensure_key(
    tx: contract.Tx, *, port: str, keyring: envelope.Keyring, now: datetime.datetime
) -> ec.EllipticCurvePrivateKey:
    stored = await sealed_rows.find(tx, keyring=keyring, name=_key_name(port))
    if stored is not None:
        return _key_of(stored)
    key = ec.generate_private_key(ec.SECP256R1())
    await sealed_rows.put(tx, keyring=keyring, name=_key_name(port), value=_pem_of(key), now=now)
    return key


async def _ensure_certificate(
    tx: contract.Tx,
    *,
    port: str,
    names: Sequence[str],
    key: ec.EllipticCurvePrivateKey,
    now: datetime.datetime,
) -> tuple[x509.Certificate, bool]:
    wanted = json.dumps(list(names))
    name = _certificate_name(port, names=wanted)
    row = await tx.fetch_one("SELECT certificate_pem FROM certificates WHERE name = ?", name)
    early = False
    if row is not None:
        present = x509.load_pem_x509_certificate(row["certificate_pem"].encode("ascii"))
        early = present.not_valid_before_utc > now
        if (
            not early
            and present.not_valid_after_utc - now > RENEWED_BEFORE_END
            and pins.pin_of_certificate(present) == _pin_of(key)
        ):
            return present, False
    made = make_certificate(key, names=names, now=now)
    await tx.execute(
        "INSERT INTO certificates(name, certificate_pem, names, not_after, updated_at) "
        "VALUES (?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET "
        "certificate_pem = excluded.certificate_pem, names = excluded.names, "
        "not_after = excluded.not_after, updated_at = excluded.updated_at",
        name,
        made.public_bytes(serialization.Encoding.PEM).decode("ascii"),
        wanted,
        clock.to_micros(made.not_valid_after_utc),
        clock.to_micros(now),
    )
    await tx.execute("DELETE FROM certificates WHERE not_after < ?", clock.to_micros(now))
    return made, early


def _certificate_name(port: str, *, names: str) -> str:
    """One certificate a set of names: engines with names of their own do not replace each other's.

    The key, and so the pin, is the same for all.
    """
    return f"{port}:{hashlib.sha256(names.encode()).hexdigest()[:16]}"


def make_certificate(
    key: ec.EllipticCurvePrivateKey, *, names: Sequence[str], now: datetime.datetime
) -> x509.Certificate:
    """A self-signed server certificate for these names and addresses, backdated an hour.

    It carries what Python 3.13 asks of an anchor, so that it also serves as its own CA file.
    """
    subject = x509.Name(
        [x509.NameAttribute(x509.NameOID.COMMON_NAME, (names or ["enlist"])[0][:_MOST_COMMON_NAME])]
    )
    public = key.public_key()
    usage = key_usage.key_usage(signs=True, signs_certificates=True)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage([oid.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )
    if names:
        alternatives = x509.SubjectAlternativeName([_general_name(name) for name in names])
        builder = builder.add_extension(alternatives, critical=False)
    return builder.sign(key, hashes.SHA256())


async def _find_next(
    tx: contract.Tx, *, port: str, keyring: envelope.Keyring
) -> tuple[ec.EllipticCurvePrivateKey | None, datetime.datetime | None]:
    row = await tx.fetch_one("SELECT value FROM platform_values WHERE name = ?", _switch_name(port))
    stored = await sealed_rows.find(tx, keyring=keyring, name=_next_name(port))
    if row is None or stored is None:
        return None, None
    return _key_of(stored), clock.from_micros(int(row["value"]))


async def _forget_next(tx: contract.Tx, *, port: str) -> None:
    await tx.execute("DELETE FROM sealed_secrets WHERE name = ?", _next_name(port))
    await tx.execute("DELETE FROM platform_values WHERE name = ?", _switch_name(port))


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name.strip("[]")))
    except ValueError:
        return x509.DNSName(name.removesuffix("."))


def _pem_of(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _key_of(pem: bytes) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pem, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError("The port's sealed key is not an elliptic-curve key.")
    return key


def _pin_of(key: ec.EllipticCurvePrivateKey) -> pins.Pin:
    return pins.pin_of_spki(
        key.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )


def _key_name(port: str) -> str:
    return f"{port}-tls-key"


def _next_name(port: str) -> str:
    return f"{port}-tls-key-next"


def _switch_name(port: str) -> str:
    return f"{port}-tls-key-switch-at"
