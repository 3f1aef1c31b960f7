"""When trust keys come and go: a plan from plain values, and the step that carries it out.

The next key is published 30 days before the last one ends; the old stays trusted until its end
(Z-52). So at most times one key signs, for a month two. `plan` is pure and has its table of cases;
`advance` does what it says in one transaction, under a lock, and may be run by every engine at any
time: the second finds nothing to do.

Known limit: a Platform that was off for the whole last month of its newest key starts with a new
key that no old one signed; its nodes then have to join again, since nothing they hold vouches for
it.
"""

import dataclasses
import datetime
from collections.abc import Sequence
from typing import Final

from platform_server.audit import actions, events
from platform_server.sealing import envelope
from platform_server.store import contract
from platform_server.trust import keys, statements
from runtime_kit import crash_points
from wire_protocol import statements as wire_statements

PUBLISHED_BEFORE_END: Final = datetime.timedelta(days=30)
MOST_KEYS: Final = (
    8  # a statement carries at most 16; an operator rotating by hand meets this first
)
_ROTATOR: Final = "platform:rotation"

BEFORE_COMMIT = crash_points.declare(
    "trust.before-commit", story="a new trust key was made and signed for, nothing is stored"
)


class TooManyKeys(Exception):
    """So many trust keys are valid at once that another would help nobody: wait for one to end."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be done now, and when to look again at the latest."""

    make_key: bool
    look_again_at: datetime.datetime


def plan(present: Sequence[wire_statements.TrustKey], *, now: datetime.datetime) -> Plan:
    """Judges the keys that are there; those that have ended count for nothing."""
    live = [key for key in present if key.not_after >= now]
    newest_end = max((key.not_after for key in live), default=now)
    make_key = newest_end - now <= PUBLISHED_BEFORE_END or not any(
        key.is_valid_at(now) for key in live
    )
    last_end = now + keys.LIFETIME if make_key else newest_end
    moments = [key.not_after for key in live] + [last_end - PUBLISHED_BEFORE_END]
    return Plan(
        make_key=make_key,
        look_again_at=min(moment for moment in moments if moment > now),
    )


async def advance(
    tx: contract.Tx,
    *,
    keyring: envelope.Keyring,
    facts: statements.Facts | None,
    environment: str,
    now: datetime.datetime,
) -> statements.Published:
    """Makes the key that is due, drops the one that ended, publishes what changed."""
    await tx.lock(statements.LOCK)
    own = list(await keys.load(tx, keyring=keyring, now=now))
    if plan([key.public for key in own], now=now).make_key:
        own.append(
            await _add_key(tx, keyring=keyring, actor=_ROTATOR, environment=environment, now=now)
        )
    await keys.forget_ended(tx, now=now)
    published = await statements.publish(tx, own_keys=own, facts=facts, now=now)
    crash_points.reach(BEFORE_COMMIT)
    return published


async def rotate_now(
    tx: contract.Tx,
    *,
    keyring: envelope.Keyring,
    now: datetime.datetime,
) -> statements.Published:
    """Publishes a further key at the operator's word; the present ones stay until their end.

    The caller records the action. Raises `TooManyKeys`.
    """
    await tx.lock(statements.LOCK)
    own = list(await keys.load(tx, keyring=keyring, now=now))
    if len(own) >= MOST_KEYS:
        raise TooManyKeys(
            f"{len(own)} trust keys are valid at once; the first ends "
            f"{own[0].public.not_after:%Y-%m-%d}. Wait for that, then rotate again."
        )
    key = keys.make(now=now)
    await keys.save(tx, key=key, keyring=keyring)
    published = await statements.publish(tx, own_keys=[*own, key], facts=None, now=now)
    await _announce(tx, key=key, now=now)
    return published


async def _add_key(
    tx: contract.Tx,
    *,
    keyring: envelope.Keyring,
    actor: str,
    environment: str,
    now: datetime.datetime,
) -> keys.OwnTrustKey:
    key = keys.make(now=now)
    await keys.save(tx, key=key, keyring=keyring)
    await actions.append(
        tx,
        action=actions.Action(
            at=now,
            actor=actor,
            action="trust.key-published",
            target=key.public.key_id,
            environment=environment,
            details={"not_after": f"{key.public.not_after:%Y-%m-%dT%H:%M:%SZ}"},
        ),
    )
    await _announce(tx, key=key, now=now)
    return key


async def _announce(tx: contract.Tx, *, key: keys.OwnTrustKey, now: datetime.datetime) -> None:
    await events.append(tx, at=now, kind="trust.key-published", subject=key.public.key_id)
