"""When the issuer's keys come and go: a plan from plain values, and the step that carries it out.

The first key signs at once. Each next one is shown a month before it signs, since the documents may
be static files on somebody else's host, which a person copies there; the one before is shown until
whatever it signed has ended and caches have forgotten it. `plan` is pure and has its table of
cases; `advance` may be run by every engine at any time: the second finds nothing to do.

Known limit: whoever hosts the documents and does not renew them within the month will see
assertions refused. `outside` tells that beforehand, and so does the event of each new key.
"""

import asyncio
import dataclasses
import datetime
from collections.abc import Sequence
from typing import Final

from cryptography.hazmat.primitives.asymmetric import rsa

from platform_server.audit import actions, events
from platform_server.cloud.issuer import keys
from platform_server.sealing import envelope
from platform_server.store import contract
from runtime_kit import clock as clock_kit

SIGNS_FOR: Final = datetime.timedelta(days=180)
SHOWN_BEFORE: Final = datetime.timedelta(days=30)
SHOWN_AFTER: Final = datetime.timedelta(days=2)
AT_ONCE: Final = datetime.timedelta(0)
MOST_KEYS: Final = 8
_ROTATOR: Final = "platform:rotation"


class TooManyKeys(Exception):
    """So many keys are shown at once that another would help nobody: wait for one to end."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """When the key that is due begins to sign (None: none is due), and when to look again."""

    next_signs_from: datetime.datetime | None
    look_again_at: datetime.datetime


def plan(shown: Sequence[keys.IssuerKey], *, now: datetime.datetime) -> Plan:
    """Judges the keys that are there."""
    last_end = max((key.signs_until for key in shown if key.signs_until > now), default=None)
    if last_end is None:
        return Plan(next_signs_from=now, look_again_at=now + SIGNS_FOR - SHOWN_BEFORE)
    if last_end - now <= SHOWN_BEFORE:
        return Plan(next_signs_from=last_end, look_again_at=last_end + SIGNS_FOR - SHOWN_BEFORE)
    moments = [key.shown_until for key in shown] + [last_end - SHOWN_BEFORE]
    return Plan(
        next_signs_from=None, look_again_at=min(moment for moment in moments if moment > now)
    )


async def advance(
    store: contract.Store,
    *,
    keyring: envelope.Keyring,
    environment: str,
    clock: clock_kit.Clock,
) -> Plan:
    """Makes the key that is due and drops those that ended; says when to look again.

    The key is made before the transaction: it takes long, and most of the time none is needed.
    """
    now = clock.now()
    due = plan(await store.read(lambda tx: keys.list_shown(tx, now=now)), now=now)
    private = None if due.next_signs_from is None else await asyncio.to_thread(keys.make_private)
    return await store.transact(
        lambda tx: _advance(tx, private=private, keyring=keyring, environment=environment, now=now)
    )


async def rotate_now(
    tx: contract.Tx,
    *,
    private: rsa.RSAPrivateKey,
    keyring: envelope.Keyring,
    signs_after: datetime.timedelta = SHOWN_BEFORE,
    now: datetime.datetime,
) -> keys.IssuerKey:
    """Shows a further key at the operator's word; the present one signs until that one does.

    `signs_after` is the time to have the documents published; `AT_ONCE` where the present key is
    feared to be in other hands. The caller records the action. Raises `TooManyKeys`.
    """
    await tx.lock(keys.LOCK)
    shown = await keys.list_shown(tx, now=now)
    if len(shown) >= MOST_KEYS:
        raise TooManyKeys(
            f"{len(shown)} keys of the issuer are shown at once; the first ends "
            f"{min(key.shown_until for key in shown):%Y-%m-%d}. Wait for that, then rotate again."
        )
    begins = now + signs_after
    for key in shown:
        if key.signs_until > begins:
            # what a thief signs is believed for as long as the key is shown
            shown_until = begins + SHOWN_AFTER if signs_after else now
            ended = dataclasses.replace(key, signs_until=begins, shown_until=shown_until)
            await keys.end_signing(tx, key=ended)
    return await _add(tx, private=private, keyring=keyring, signs_from=begins, now=now)


async def _advance(
    tx: contract.Tx,
    *,
    private: rsa.RSAPrivateKey | None,
    keyring: envelope.Keyring,
    environment: str,
    now: datetime.datetime,
) -> Plan:
    await tx.lock(keys.LOCK)
    due = plan(await keys.list_shown(tx, now=now), now=now)
    if due.next_signs_from is not None and private is not None:
        key = await _add(
            tx, private=private, keyring=keyring, signs_from=due.next_signs_from, now=now
        )
        await actions.append(
            tx,
            action=actions.Action(
                at=now,
                actor=_ROTATOR,
                action="cloud.issuer-key-shown",
                target=key.key_id,
                environment=environment,
                details=_told(key),
            ),
        )
    await keys.forget_ended(tx, now=now)
    return plan(await keys.list_shown(tx, now=now), now=now)


async def _add(
    tx: contract.Tx,
    *,
    private: rsa.RSAPrivateKey,
    keyring: envelope.Keyring,
    signs_from: datetime.datetime,
    now: datetime.datetime,
) -> keys.IssuerKey:
    jwk = keys.jwk_of(private.public_key())
    until = signs_from + SIGNS_FOR
    key = keys.IssuerKey(
        key_id=jwk["kid"],
        jwk=jwk,
        created_at=now,
        signs_from=signs_from,
        signs_until=until,
        shown_until=until + SHOWN_AFTER,
    )
    await keys.save(tx, private=private, key=key, keyring=keyring)
    await events.append(
        tx, at=now, kind="cloud.issuer-key-shown", subject=key.key_id, data=_told(key)
    )
    return key


def _told(key: keys.IssuerKey) -> dict[str, str]:
    return {
        "signs_from": f"{key.signs_from:%Y-%m-%dT%H:%M:%SZ}",
        "signs_until": f"{key.signs_until:%Y-%m-%dT%H:%M:%SZ}",
        "next_step": "enlist cloud issuer export DIR, then publish it before signs_from",
    }
