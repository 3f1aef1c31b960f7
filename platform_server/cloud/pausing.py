"""Whether a connection may be used: paused once, loudly, tried again rarely, resumed at once.

A connection is paused by whoever first learns that its credential is refused, and only if that was
the present credential: what an old one met says nothing of the new. One that has to be set up at
its provider first is held back the same way, without an alarm.
"""

import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from typing import Any, Final

from platform_server.audit import actions, events
from platform_server.cloud import connections
from platform_server.store import contract
from provisioning import contract as provider
from runtime_kit import clock as clock_kit

PROBE_SECONDS: Final = 300
LOOK_SECONDS: Final = 60.0  # how often what waits for it looks whether it was resumed
LONGEST_REASON: Final = 1024
_NEEDED: Final = frozenset(
    {provider.Feature.CHECK, provider.Feature.CATALOG, provider.Feature.MACHINES}
)


async def is_paused(tx: contract.Tx, *, connection_id: str, now: datetime.datetime) -> bool:
    """Whether it is paused and no probe is due: what waits for it has nothing to do now."""
    found = await connections.find(tx, connection_id=connection_id)
    if found is None or found.pause is None:
        return False
    return found.pause.probe_at is not None and found.pause.probe_at > now


async def pause(
    tx: contract.Tx,
    *,
    connection: connections.Connection,
    reason: str,
    topic: str,
    environment: str,
    now: datetime.datetime,
) -> bool:
    """Pauses it, unless it is paused or has another credential by now; says whether it did.

    One event and one action tell of it, whoever else meets the same refusal.
    """
    changed = await tx.execute(
        "UPDATE cloud_connections SET paused_at = ?, paused_reason = ?, paused_topic = ?, "
        "probe_at = ? WHERE connection_id = ? AND paused_at IS NULL AND credential_at = ?",
        clock_kit.to_micros(now),
        _kept(reason),
        topic,
        clock_kit.to_micros(now + datetime.timedelta(seconds=PROBE_SECONDS)),
        connection.connection_id,
        clock_kit.to_micros(connection.credential_at),
    )
    if changed:
        details = {"connection_id": connection.connection_id, "reason": _kept(reason)}
        await _tell(
            tx,
            connection=connection,
            what="paused",
            actor=connections.ACTOR,
            details={**details, "topic": topic},
            environment=environment,
            now=now,
        )
    return bool(changed)


async def hold(
    tx: contract.Tx,
    *,
    connection: connections.Connection,
    reason: str,
    topic: str,
    now: datetime.datetime,
) -> None:
    """Holds it back, in place of a former pause; no alarm, since a person is at work on it."""
    await tx.execute(
        "UPDATE cloud_connections SET paused_at = ?, paused_reason = ?, paused_topic = ?, "
        "probe_at = ? WHERE connection_id = ?",
        clock_kit.to_micros(now),
        _kept(reason),
        topic,
        clock_kit.to_micros(now + datetime.timedelta(seconds=PROBE_SECONDS)),
        connection.connection_id,
    )


async def take_probe(
    tx: contract.Tx, *, connection: connections.Connection, now: datetime.datetime
) -> bool:
    """Whether the caller may try the paused connection once; the next may in five minutes."""
    return bool(
        await tx.execute(
            "UPDATE cloud_connections SET probe_at = ? WHERE connection_id = ? "
            "AND paused_at IS NOT NULL AND probe_at <= ?",
            clock_kit.to_micros(now + datetime.timedelta(seconds=PROBE_SECONDS)),
            connection.connection_id,
            clock_kit.to_micros(now),
        )
    )


async def resume(
    tx: contract.Tx,
    *,
    connection: connections.Connection,
    actor: str,
    environment: str,
    now: datetime.datetime,
) -> bool:
    """Ends the pause, and has whatever waited looked at now; says whether there was one.

    Only where the credential is the one of `connection`: what another one can do proves nothing.
    """
    changed = await tx.execute(
        "UPDATE cloud_connections SET paused_at = NULL, paused_reason = NULL, "
        "paused_topic = NULL, probe_at = NULL WHERE connection_id = ? AND paused_at IS NOT NULL "
        "AND credential_at = ?",
        connection.connection_id,
        clock_kit.to_micros(connection.credential_at),
    )
    if changed:
        await tx.execute(
            "UPDATE operations SET next_at = ? WHERE ended_at IS NULL AND next_at > ?",
            *(clock_kit.to_micros(now),) * 2,
        )
        await _tell(
            tx,
            connection=connection,
            what="resumed",
            actor=actor,
            details={"connection_id": connection.connection_id},
            environment=environment,
            now=now,
        )
    return bool(changed)


def without_spare(
    validation: provider.Validation, *, calls: Sequence[provider.ApiCall]
) -> tuple[provider.Validation, Sequence[str]]:
    """Sets apart the missing rights that no machine needs."""
    needed = {one.right for one in calls if one.feature in _NEEDED}
    known = {one.right for one in calls}
    spare = [one for one in validation.missing if one in known and one not in needed]
    missing = tuple(one for one in validation.missing if one not in spare)
    return dataclasses.replace(validation, missing=missing), spare


async def _tell(
    tx: contract.Tx,
    *,
    connection: connections.Connection,
    what: str,
    actor: str,
    details: Mapping[str, Any],
    environment: str,
    now: datetime.datetime,
) -> None:
    await events.append(
        tx,
        at=now,
        kind=f"cloud-connection.{what}",
        subject=connection.name,
        infra=connection.infra,
        data={**details, "provider": connection.provider},
    )
    await actions.append(
        tx,
        action=actions.Action(
            at=now,
            actor=actor,
            action=f"cloud.connections.{what}",
            target=connection.name,
            environment=environment,
            infra=connection.infra,
            details=details,
        ),
    )


def _kept(text: str) -> str:
    return "".join(one if one.isprintable() else " " for one in text)[:LONGEST_REASON]
