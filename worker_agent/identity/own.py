"""The machine's identity on disk: looked at without changing anything, made where it is missing.

A file that exists is not yet a key: an empty or damaged one is named for what it is. An empty key
file holds nothing to lose and is replaced; anything else that cannot be read as a key is left
alone, since it may be a real one that a person can still repair.
"""

import dataclasses
import datetime
import pathlib
from collections.abc import Callable, Sequence

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from runtime_kit import crash_points, private_files
from wire_protocol import ids, pins
from worker_agent.identity import certificates, states
from worker_agent.settings import failures, paths

MAX_BYTES = 16_384  # a P-256 key has 241 bytes and a certificate with 16 long names about 3,000

KEY_SAVED = crash_points.declare("join.key-saved", story="The machine's key is on the disk.")
CERTIFICATE_SAVED = crash_points.declare(
    "join.certificate-saved", story="The machine's certificate is on the disk."
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A key and its certificate, both proved to be readable and to belong together."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def pin(self) -> pins.Pin:
        """The pin by which the Platform knows this machine."""
        return pins.pin_of_certificate(self.certificate)

    @property
    def certificate_pem(self) -> str:
        """The certificate as it is sent."""
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    @property
    def certificate_der(self) -> bytes:
        """The certificate's exact bytes."""
        return self.certificate.public_bytes(serialization.Encoding.DER)

    def __repr__(self) -> str:
        return f"Identity(pin={self.pin!r})"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What `look` found; `fault` says in words what is wrong where something is."""

    state: states.State
    key: ec.EllipticCurvePrivateKey | None = None
    certificate: x509.Certificate | None = None
    fault: str | None = None

    def __repr__(self) -> str:
        return f"Found(state={self.state!r}, fault={self.fault!r})"


def look(where: paths.Paths, *, reader: private_files.Reader = private_files.read_private) -> Found:
    """What the identity folder holds: FRESH, KEYED, CERTIFIED or DAMAGED. Changes nothing."""
    content, fault = _read(where.key, reader=reader)
    if content is None:
        if fault is not None:
            return Found(state=states.State.DAMAGED, fault=fault)
        if where.certificate.exists() and where.certificate.stat().st_size > 0:
            return Found(
                state=states.State.DAMAGED,
                fault=f"{where.certificate} is there, but its key {where.key} is not.",
            )
        return Found(state=states.State.FRESH)
    if not content.strip():
        return Found(state=states.State.FRESH, fault=f"{where.key} is empty: it holds no key.")
    try:
        key = certificates.parse_key(content)
    except ValueError as error:
        return Found(state=states.State.DAMAGED, fault=f"{where.key} cannot be used: {error}.")
    return _look_at_certificate(where, key=key, reader=reader)


def load(where: paths.Paths) -> Identity:
    """The identity of a joined machine; raises `NeedsOperator` where it cannot be used."""
    found = look(where)
    if found.key is None or found.certificate is None:
        raise damaged(found, where=where)
    return Identity(key=found.key, certificate=found.certificate)


def ensure(
    where: paths.Paths,
    *,
    node_id: ids.NodeId,
    addresses: Sequence[str],
    now: datetime.datetime,
    warn: Callable[[str], None],
) -> Identity:
    """Makes what is missing, keeps a real key for ever, and returns the identity.

    May be repeated. A certificate with other names is made anew with the same key, so that the
    pin stays. Raises `NeedsOperator` where a file that may be a real key cannot be used, and
    `OSError` where the disk is full or not writable.
    """
    found = look(where)
    if found.state is states.State.DAMAGED:
        raise damaged(found, where=where)
    if found.fault is not None:
        warn(f"{found.fault} It is made anew.")
    state: states.State = found.state
    key = found.key
    private_files.ensure_private_folder(where.identity)
    private_files.sweep(where.key)
    if key is None:
        if where.key.exists():  # empty, as `look` has seen
            where.key.unlink()
        fresh = certificates.new_key()
        if not private_files.create_private(where.key, certificates.key_pem(fresh)):
            raise failures.Temporary(
                f"Another program has just made {where.key}. Run the same command again."
            )
        key = fresh
        state = states.step(state, states.Event.KEY_SAVED)
        crash_points.reach(KEY_SAVED)
    certificate = found.certificate
    wanted = certificates.names_of(node_id, addresses=addresses)
    if certificate is None or _names(certificate) != wanted:
        certificate = certificates.self_signed(key, node_id=node_id, addresses=addresses, now=now)
        pem = certificate.public_bytes(serialization.Encoding.PEM)
        private_files.write_private(where.certificate, pem)
        states.step(state, states.Event.CERTIFICATE_SAVED)
        crash_points.reach(CERTIFICATE_SAVED)
    return Identity(key=key, certificate=certificate)


def is_half_replaced(where: paths.Paths) -> bool:
    """Whether a renewal with a new key was cut off between the key and the certificate."""
    content, _ = _read(where.key, reader=private_files.read_private)
    try:
        key = certificates.parse_key(content or b"")
    except ValueError:
        return False
    return (
        _certificate_of(where.certificate, key=key, reader=private_files.read_private) is None
        and _certificate_of(where.next_certificate, key=key, reader=private_files.read_private)
        is not None
    )


def pin_of(certificate: x509.Certificate) -> pins.Pin:
    """The pin by which the Platform knows a machine with this certificate."""
    return pins.pin_of_certificate(certificate)


def damaged(found: Found, *, where: paths.Paths) -> failures.NeedsOperator:
    """The failure to raise for an identity that a person must look at."""
    if found.state is states.State.KEYED:
        return failures.NeedsOperator(
            found.fault or f"{where.certificate} is not there.",
            hint="Its key is. Make the certificate anew by joining again, with the token that "
            "this machine joined with or a new one: enlist worker join -",
        )
    if found.state is states.State.FRESH:
        return failures.NeedsOperator(
            found.fault or f"The key {where.key} is not there.",
            hint="Restore it, or join again with a new token (on the Platform: enlist nodes "
            "enroll-token NODE_ID --replace): enlist worker join -",
        )
    fault = found.fault or f"{where.identity} holds no usable key and certificate."
    return failures.NeedsOperator(
        f"{fault} Nothing was changed, because it may hold a real key.",
        hint=f"Restore it, or give it up and join again with a new token: mv {where.identity} "
        f"{where.identity}.damaged",
    )


def _look_at_certificate(
    where: paths.Paths, *, key: ec.EllipticCurvePrivateKey, reader: private_files.Reader
) -> Found:
    content, fault = _read(where.certificate, reader=reader)
    if content is None or not content.strip():
        empty = f"{where.certificate} is empty." if content is not None else fault
        return Found(state=states.State.KEYED, key=key, fault=empty)
    try:
        certificate = certificates.parse_certificate(content)
    except ValueError as error:
        return Found(
            state=states.State.KEYED,
            key=key,
            fault=f"{where.certificate} cannot be used: {error}.",
        )
    if certificate.public_key() != key.public_key():
        replacing = _certificate_of(where.next_certificate, key=key, reader=reader)
        if replacing is not None:  # a renewal with a new key was cut off after the key
            return Found(state=states.State.CERTIFIED, key=key, certificate=replacing)
        return Found(
            state=states.State.DAMAGED,
            fault=f"{where.certificate} belongs to another key than {where.key}.",
        )
    return Found(state=states.State.CERTIFIED, key=key, certificate=certificate)


def _certificate_of(
    path: pathlib.Path, *, key: ec.EllipticCurvePrivateKey, reader: private_files.Reader
) -> x509.Certificate | None:
    """That key's certificate in the file, if it is one."""
    content, _ = _read(path, reader=reader)
    try:
        certificate = certificates.parse_certificate(content or b"")
    except ValueError:
        return None
    return certificate if certificate.public_key() == key.public_key() else None


def _names(certificate: x509.Certificate) -> x509.SubjectAlternativeName | None:
    try:
        return certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return None


def _read(path: pathlib.Path, *, reader: private_files.Reader) -> tuple[bytes | None, str | None]:
    """The content, or None and what is wrong; a missing file is None without a fault."""
    try:
        return reader(path, max_bytes=MAX_BYTES), None
    except FileNotFoundError:
        return None, None
    except (private_files.LaxMode, private_files.FileTooLarge) as error:
        return None, str(error)
    except OSError as error:
        return None, f"{path} cannot be read: {error.strerror}."
