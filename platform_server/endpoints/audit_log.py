"""`/audit`: the log of authenticated actions, newest first, and whether its chain is whole."""

import datetime
from typing import Annotated

import pydantic

from platform_server.audit import chain
from platform_server.endpoints import calls, cursors, refusals, routes
from wire_protocol import admin, times

_NAME = "^[ -~]{1,128}$"


class AuditQuery(routes.PageQuery):
    """Which entries."""

    actor: Annotated[
        str | None, pydantic.Field(pattern=_NAME, description="Only what this actor did.")
    ] = None
    action: Annotated[
        str | None, pydantic.Field(pattern=_NAME, description="Only this action.")
    ] = None
    since: Annotated[
        str | None,
        pydantic.Field(
            description="Only entries from this moment on (RFC 3339).",
            json_schema_extra={"format": "date-time"},
        ),
    ] = None


async def list_page(call: calls.Call[None, AuditQuery]) -> admin.ActionList:
    """Entries, newest first."""
    query = call.query
    chosen = chain.Filter(
        actor=query.actor,
        action=query.action,
        infra=query.infra,
        since=_moment(query.since),
        before_seq=cursors.decode_int(query.cursor),
    )
    found = await call.read(lambda tx: chain.list_page(tx, limit=query.limit + 1, chosen=chosen))
    page = found[: query.limit]
    more = len(found) > len(page)
    return admin.ActionList(
        entries=[_shown(entry) for entry in page],
        next_cursor=cursors.encode(page[-1].seq) if more else None,
    )


async def verify(call: calls.Call[None, routes.NoQuery]) -> admin.ChainVerdict:
    """Walks the chain."""
    verdict = await chain.verify(call.store)
    detail = (
        f"The log is whole: {verdict.entries} entries. Keep the last hash elsewhere to notice a "
        "later cut at the end."
        if verdict.broken_at is None
        else f"The log is broken at entry {verdict.broken_at}: {verdict.fault}."
    )
    return admin.ChainVerdict(
        intact=verdict.broken_at is None,
        entries=verdict.entries,
        first_seq=verdict.first_seq,
        last_seq=verdict.last_seq,
        last_hash=None if verdict.last_hash is None else verdict.last_hash.hex(),
        broken_at=verdict.broken_at,
        detail=detail,
    )


def _moment(text: str | None) -> datetime.datetime | None:
    if text is None:
        return None
    try:
        return times.from_rfc3339(text)
    except ValueError as fault:
        raise refusals.invalid("since", f"since: {fault}") from None


def _shown(entry: chain.Entry) -> admin.ActionEntry:
    return admin.ActionEntry(
        seq=entry.seq,
        at=entry.at,
        actor=entry.actor,
        action=entry.action,
        target=entry.target,
        operation=entry.operation,
        infra=entry.infra,
        environment=entry.environment,
        mfa_verified=entry.mfa_verified,
        details=dict(entry.details),
        previous_hash=entry.previous_hash.hex(),
        hash=entry.hash.hex(),
    )


def served() -> tuple[routes.Route, ...]:
    """The routes of this module."""
    return (
        routes.Route(
            method="GET",
            path="/api/v1/audit",
            summary="The log of authenticated actions, newest first.",
            handler=list_page,
            query=AuditQuery,
            cursor=(int,),
            answer=admin.ActionList,
        ),
        routes.Route(
            method="GET",
            path="/api/v1/audit/verify",
            summary="Walk the chain of hashes and name the first entry that does not fit.",
            handler=verify,
            answer=admin.ChainVerdict,
        ),
    )
