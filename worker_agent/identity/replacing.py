"""The certificate, or the key, that is to replace the present one: made, kept, put in its place.

The next one lies beside the present one, whole and synced, before the Platform hears of it, and
takes its place only once the Platform has welcomed it (rule 7). So whatever answer is lost and
wherever the process is killed, one of the two is known to the Platform. What was replaced is kept a
while (`Paths.formers`), since a Platform that is put back from a backup may know nothing later.

Known limit: whoever writes here holds the worker's lock (`lock.held`); readers need none.
"""

import contextlib
import dataclasses
import datetime
import functools
import logging
import pathlib

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from runtime_kit import crash_points, private_files
from wire_protocol import ids, pins
from worker_agent.identity import certificates, own
from worker_agent.settings import paths

_LOG = logging.getLogger(__name__)

NEXT_KEY_SAVED = crash_points.declare("renew.next-key-saved", story="The next key is on the disk.")
NEXT_SAVED = crash_points.declare(
    "renew.next-saved", story="The next certificate is on the disk; the Platform has not heard."
)
FORMER_SAVED = crash_points.declare(
    "renew.former-saved", story="The present key and certificate are kept aside."
)
KEY_REPLACED = crash_points.declare(
    "renew.key-replaced", story="The next key is the present one; the certificate is not yet."
)
REPLACED = crash_points.declare("renew.replaced", story="The next certificate is the present one.")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One key with its certificate, as files by which this machine may prove itself."""

    name: str  # present, next, former
    pin: pins.Pin
    certificate_sha256: pins.Pin
    certificate: pathlib.Path
    key: pathlib.Path  # the same file where both stand in one


def candidates(where: paths.Paths) -> tuple[Candidate, ...]:
    """By what to prove itself, in the order to try: the next, the present, then the former ones.

    The next one comes first: where the Platform knows it at all, it may have seen it in use, and
    takes whoever shows the present one after that for a copy. Raises `NeedsOperator` where the
    present one cannot be used.
    """
    present, coming = own.load(where), find_next(where)
    found = []
    if coming is not None:
        key = where.next_key if where.next_key.exists() else where.key
        found.append(
            Candidate(
                name="next",
                pin=coming.pin,
                certificate_sha256=pins.fingerprint_of_certificate(coming.certificate),
                certificate=where.next_certificate,
                key=key,
            )
        )
    half = own.is_half_replaced(where)
    found.append(
        Candidate(
            name="present",
            pin=present.pin,
            certificate_sha256=pins.fingerprint_of_certificate(present.certificate),
            certificate=where.next_certificate if half else where.certificate,
            key=where.key,
        )
    )
    for path in where.formers:
        certificate = _former(path)
        if certificate is not None:
            found.append(
                Candidate(
                    name="former",
                    pin=pins.pin_of_certificate(certificate),
                    certificate_sha256=pins.fingerprint_of_certificate(certificate),
                    certificate=path,
                    key=path,
                )
            )
    return tuple(found)


def _former(path: pathlib.Path) -> x509.Certificate | None:
    """The certificate of a former pair; None, and a warning, where it cannot be used."""
    try:
        pair = private_files.read_private(path, max_bytes=own.MAX_BYTES)
        return certificates.parse_certificate(pair)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, private_files.LaxMode, private_files.FileTooLarge) as fault:
        _warn_once(path, str(fault))
        return None


@functools.lru_cache(maxsize=32)
def _warn_once(path: pathlib.Path, reason: str) -> None:
    """Candidates are looked for at each connection: a fault that stays is said once."""
    _LOG.warning(
        "A former key and certificate cannot be used; a Platform put back from an old backup may "
        "not know this machine by the present ones",
        extra={"path": str(path), "reason": reason},
    )


def find_next(where: paths.Paths) -> own.Identity | None:
    """The pair that is to replace the present one; None where there is none that can be used."""
    if own.is_half_replaced(where):
        return None
    try:
        content = private_files.read_private(where.next_certificate, max_bytes=own.MAX_BYTES)
        certificate = certificates.parse_certificate(content)
        path = where.next_key if where.next_key.exists() else where.key
        key = certificates.parse_key(private_files.read_private(path, max_bytes=own.MAX_BYTES))
    except (OSError, ValueError, private_files.LaxMode, private_files.FileTooLarge):
        return None
    if key.public_key() != certificate.public_key():
        return None
    return own.Identity(key=key, certificate=certificate)


def prepare(
    where: paths.Paths,
    *,
    node_id: ids.NodeId,
    addresses: tuple[str, ...],
    now: datetime.datetime,
    days: int,
    new_key: bool | None,
) -> own.Identity:
    """Makes the next pair where there is none of that kind yet, and returns it. May be repeated.

    To be called only while the Platform is known to accept the present one: a next one that was
    made earlier may be thrown away. `new_key` None takes whichever is there already. Raises
    `OSError` where the disk is full or not writable.
    """
    coming = find_next(where)
    if coming is not None and _serves(coming, where=where, new_key=new_key, now=now):
        return coming
    private_files.sweep(where.next_key)
    where.next_certificate.unlink(missing_ok=True)
    key = _next_key(where, is_new=bool(new_key))
    certificate = certificates.self_signed(
        key, node_id=node_id, addresses=addresses, now=now, days=days
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    private_files.write_private(where.next_certificate, pem)
    crash_points.reach(NEXT_SAVED)
    return own.Identity(key=key, certificate=certificate)


def promote(where: paths.Paths) -> None:
    """Puts the next pair in the present one's place; to be called once it was welcomed.

    May be repeated, and is finished by the next call after a crash. Raises `OSError` where the disk
    is full or not writable: the Platform welcomes the next pair from its place beside as well.
    """
    finish(where)
    if find_next(where) is None:
        return
    _keep_former(where)
    if where.next_key.exists():
        where.next_key.rename(where.key)
        crash_points.reach(KEY_REPLACED)
    where.next_certificate.rename(where.certificate)
    private_files.sync_folder(where.identity)
    crash_points.reach(REPLACED)


def finish(where: paths.Paths) -> None:
    """Ends a replacement that was cut off between the key and the certificate."""
    if own.is_half_replaced(where):
        where.next_certificate.rename(where.certificate)
        private_files.sync_folder(where.identity)


def discard(where: paths.Paths) -> None:
    """Throws the next pair away; only while the Platform is known to accept the present one."""
    where.next_certificate.unlink(missing_ok=True)
    where.next_key.unlink(missing_ok=True)


def certificate_of(candidate: Candidate) -> x509.Certificate:
    """The certificate that the candidate shows."""
    content = private_files.read_private(candidate.certificate, max_bytes=own.MAX_BYTES)
    return certificates.parse_certificate(content)


def _serves(
    coming: own.Identity, *, where: paths.Paths, new_key: bool | None, now: datetime.datetime
) -> bool:
    """Whether a next pair that lies there is of the wanted kind and has not grown old itself."""
    if certificates.is_due(coming.certificate, now=now):
        return False
    is_new = coming.pin != own.load(where).pin
    return new_key is None or new_key == is_new


def _next_key(where: paths.Paths, *, is_new: bool) -> ec.EllipticCurvePrivateKey:
    if not is_new:
        where.next_key.unlink(missing_ok=True)
        return own.load(where).key
    key = certificates.new_key()
    private_files.write_private(where.next_key, certificates.key_pem(key))
    crash_points.reach(NEXT_KEY_SAVED)
    return key


def _keep_former(where: paths.Paths) -> None:
    """The present pair becomes the first of the formers, once."""
    present = own.load(where)
    pair = certificates.key_pem(present.key) + present.certificate_pem.encode()
    with contextlib.suppress(FileNotFoundError):
        if where.formers[0].read_bytes() == pair:
            return
    for earlier, later in reversed(list(zip(where.formers, where.formers[1:], strict=False))):
        with contextlib.suppress(FileNotFoundError):
            earlier.replace(later)
    private_files.write_private(where.formers[0], pair)
    crash_points.reach(FORMER_SAVED)
