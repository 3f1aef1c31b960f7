"""The breaker of a template: so many failures in a row, and no more machines of it are ordered.

A template is what machines have in common: connection, region, size, image, role. A failure is a
machine that was there and did not become a node; being refused for a quota, a sold-out size or a
wrong order is none. A person closes it again, and so does a machine of it that becomes a node.
"""

import dataclasses
import datetime
import hashlib
from typing import Final

from platform_server.audit import events
from platform_server.store import contract
from runtime_kit import clock

OPENED: Final = "cloud-template.stopped"
CLOSED: Final = "cloud-template.resumed"
_REASON: Final = 500


class TemplateStopped(Exception):
    """Too many machines like this one failed in a row; a person must say that it goes on."""

    def __init__(self, text: str, *, template: str) -> None:
        super().__init__(text)
        self.template = template


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """How a template stands."""

    template: str
    failures: int
    opened_at: datetime.datetime | None
    reason: str


def template_of(*, connection_id: str, region: str, size: str, image: str, role: str) -> str:
    """The template's name: the same for machines that are ordered alike."""
    joined = f"{connection_id}\n{region}\n{size}\n{image}\n{role}"
    return hashlib.sha256(joined.encode()).hexdigest()[:16]


async def find(tx: contract.Tx, *, template: str) -> Breaker | None:
    """How the template stands, None where nothing has failed."""
    row = await tx.fetch_one(
        "SELECT failures, opened_at, reason FROM cloud_breakers WHERE template = ?", template
    )
    if row is None:
        return None
    opened_at = row["opened_at"]
    return Breaker(
        template=template,
        failures=int(row["failures"]),
        opened_at=None if opened_at is None else clock.from_micros(opened_at),
        reason=row["reason"],
    )


async def require_closed(tx: contract.Tx, *, template: str) -> None:
    """Raises `TemplateStopped`."""
    found = await find(tx, template=template)
    if found is not None and found.opened_at is not None:
        raise TemplateStopped(
            f"{found.failures} machines like this one failed in a row, the last: {found.reason} "
            "Look at one of them (enlist cloud machines list), mend the cause, then let it go on: "
            f"enlist cloud machines resume-template {template}",
            template=template,
        )


async def failed(
    tx: contract.Tx,
    *,
    template: str,
    reason: str,
    most: int,
    infra: str,
    now: datetime.datetime,
) -> None:
    """One more machine of it was there and did not become a node."""
    moment = clock.to_micros(now)
    row = await tx.fetch_one(
        "INSERT INTO cloud_breakers(template, failures, opened_at, reason, updated_at) "
        "VALUES (?, 1, ?, ?, ?) "
        "ON CONFLICT (template) DO UPDATE SET failures = cloud_breakers.failures + 1, "
        "opened_at = CASE WHEN cloud_breakers.opened_at IS NULL "
        "AND cloud_breakers.failures + 1 >= ? THEN CAST(? AS BIGINT) "
        "ELSE cloud_breakers.opened_at END, "
        "reason = excluded.reason, updated_at = excluded.updated_at RETURNING failures, opened_at",
        template,
        moment if most <= 1 else None,
        reason[:_REASON],
        moment,
        most,
        moment,
    )
    if row is not None and row["opened_at"] == moment:
        await events.append(
            tx,
            at=now,
            kind=OPENED,
            subject=template,
            infra=infra,
            data={"failures": int(row["failures"]), "reason": reason[:_REASON]},
        )


async def close(tx: contract.Tx, *, template: str, infra: str, now: datetime.datetime) -> bool:
    """It may go on; says whether it was stopped or had begun to count."""
    found = await find(tx, template=template)
    if found is None:
        return False
    await tx.execute("DELETE FROM cloud_breakers WHERE template = ?", template)
    if found.opened_at is not None:
        await events.append(tx, at=now, kind=CLOSED, subject=template, infra=infra, data={})
    return True
