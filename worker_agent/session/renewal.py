"""Renews the certificate, or changes the key, over a connection that proves the key in use.

The next pair is on the disk before the Platform hears of it and is put in the present one's place
only when a connection made with it was welcomed (`replacing`), so an answer may be lost any number
of times: the same request is sent again and gets the same answer. Whoever was let in by a former
pair (the Platform was put back from a backup) makes the present pair known again in the same way.
"""

import contextlib
import dataclasses
from collections.abc import AsyncIterator

from runtime_kit import clock as clock_kit
from runtime_kit import crash_points, private_files
from wire_protocol import pins, session, strict_json
from wire_protocol import renewal as wire
from worker_agent.identity import certificates, lock, own, replacing
from worker_agent.session import connecting
from worker_agent.settings import failures, paths

ANSWER_SECONDS = 20.0

_REPLACED = "Another command has renewed this machine's certificate meanwhile."
ASKED = crash_points.declare("renew.asked", story="The renewal is about to be sent.")
GRANTED = crash_points.declare("renew.granted", story="The Platform knows the next certificate.")


class _ReplacedMeanwhile(failures.Temporary):
    """The connection was made with a key that has been replaced since; the next one is not."""


async def renew(
    opened: connecting.Opened,
    *,
    where: paths.Paths,
    clock: clock_kit.Clock,
    new_key: bool | None = None,
) -> own.Identity:
    """Makes the next pair known to the Platform and returns it; it is not in use yet.

    Where the connection was let in by a next pair that lay there already, that one is put in place
    first, and is enough if it is of the wanted kind.

    `new_key` None goes on with a next pair that lies there already, or keeps the key. The time by
    which the certificate is made is the Platform's. Raises what `Link.ask` raises, `Fault` for an
    answer about another certificate, and `Temporary` where nothing can be written.
    """
    if opened.proof.name == "next":
        before = own.load(where).pin
        await put_in_place(where, clock=clock)
        placed = own.load(where)
        if new_key is None or new_key == (placed.pin != before):
            return placed  # what an earlier renewal began is what was wanted
        present = next(one for one in replacing.candidates(where) if one.name == "present")
        opened = dataclasses.replace(opened, proof=present)
    if opened.proof.name == "former":
        coming = own.load(where)
    else:
        coming = await _prepare(opened, where=where, clock=clock, new_key=new_key)
    der = coming.certificate_der
    signature = None
    if coming.pin != opened.proof.pin:
        signature = wire.sign(_key_of(opened.proof), der)
    request = wire.Request(certificate_pem=coming.certificate_pem, signature=signature)
    crash_points.reach(ASKED)
    said = await opened.link.ask(
        session.Ask.RENEW, request.to_bytes(), timeout_s=ANSWER_SECONDS, max_bytes=16_384
    )
    try:
        granted = wire.parse_granted(said)
    except strict_json.Malformed as error:
        raise failures.Fault(f"The answer to the renewal is not understood: {error}") from error
    if (granted.pin, granted.certificate_sha256) != (
        coming.pin,
        pins.fingerprint_of_certificate(coming.certificate),
    ):
        raise failures.Fault("The Platform answered for another certificate than the one sent.")
    crash_points.reach(GRANTED)
    return coming


def is_due(opened: connecting.Opened, *, where: paths.Paths, clock: clock_kit.Clock) -> bool:
    """Whether there is something to renew: by the Platform's time, or a renewal that began."""
    if opened.proof.name != "present" or where.next_certificate.exists():
        return True
    present = replacing.certificate_of(opened.proof)
    return certificates.is_due(present, now=opened.platform_time(clock))


async def put_in_place(where: paths.Paths, *, clock: clock_kit.Clock) -> None:
    """The next pair was welcomed and becomes the present one; raises `Temporary` if it cannot."""
    async with _locked(where, clock=clock):
        replacing.promote(where)


async def _prepare(
    opened: connecting.Opened,
    *,
    where: paths.Paths,
    clock: clock_kit.Clock,
    new_key: bool | None,
) -> own.Identity:
    _, agent = connecting.read(where)
    async with _locked(where, clock=clock):
        present = own.load(where).certificate
        if pins.fingerprint_of_certificate(present) != opened.proof.certificate_sha256:
            raise _ReplacedMeanwhile(_REPLACED)
        return replacing.prepare(
            where,
            node_id=agent.node_id,
            addresses=agent.addresses,
            now=opened.platform_time(clock),
            days=opened.welcome.certificate_days,
            new_key=new_key,
        )


def _key_of(proof: replacing.Candidate) -> certificates.PrivateKey:
    """The key that the connection proved; its file may hold another one by now."""
    key = certificates.parse_key(private_files.read_private(proof.key, max_bytes=own.MAX_BYTES))
    if certificates.pin_of_key(key) != proof.pin:
        raise _ReplacedMeanwhile(_REPLACED)
    return key


@contextlib.asynccontextmanager
async def _locked(where: paths.Paths, *, clock: clock_kit.Clock) -> AsyncIterator[None]:
    """Holds the worker's lock, waiting for it for a bounded time; a disk's fault is `Temporary`."""
    async with lock.waited_for(where, clock=clock):
        try:
            yield
        except OSError as error:
            raise failures.Temporary(
                f"{where.identity} cannot be written: {error.strerror or error}. The present "
                "certificate stays in use."
            ) from error
