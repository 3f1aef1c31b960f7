"""`/tokens`: API tokens for people and programs. Made, listed, ended.

Nobody can give away more than he has: a token made through a token has at most its permissions.
"""

import datetime
from typing import Any

from platform_server.access import tokens
from platform_server.audit import events
from platform_server.endpoints import calls, cursors, refusals, routes
from platform_server.store import contract
from wire_protocol import admin


async def create(call: calls.Call[admin.CreateApiTokenRequest, routes.NoQuery]) -> calls.Reply:
    """Makes a token; its text is in this answer and nowhere else."""
    for permission in call.body.permissions:
        call.require(permission)
    now = call.now()
    days = call.body.ttl_days
    expires_at = None if days is None else now + datetime.timedelta(days=days)
    permissions = sorted(set(call.body.permissions))

    async def work(tx: contract.Tx) -> calls.Changed:
        created = await tokens.create(
            tx,
            name=call.body.name,
            permissions=permissions,
            infra=call.settings.platform.infra,
            created_by=call.principal.name,
            now=now,
            expires_at=expires_at,
        )
        token_id = created.record.token_id
        await events.append(
            tx, at=now, kind="token.created", subject=token_id, infra=created.record.infra
        )
        await call.record(
            tx,
            action="tokens.create",
            target=f"token:{token_id}",
            infra=created.record.infra,
            details={"name": call.body.name, "permissions": permissions, "ttl_days": days},
        )
        return calls.Changed(
            changes=[
                admin.Change(
                    action="create",
                    target=f"token {call.body.name}",
                    detail=f"with {', '.join(permissions)}, "
                    + ("without an end" if days is None else f"for {days} days"),
                )
            ],
            answer=admin.CreateApiTokenAnswer(
                token=created.text.reveal(), record=shown(created.record)
            ),
        )

    return await call.mutate(work)


async def list_page(call: calls.Call[None, routes.PageQuery]) -> admin.ApiTokenList:
    """Tokens by id, ended ones too."""
    after = cursors.decode_text(call.query.cursor)
    found = await call.read(
        lambda tx: tokens.list_page(
            tx, limit=call.query.limit + 1, after=after, infra=call.query.infra
        )
    )
    page = found[: call.query.limit]
    more = len(found) > len(page)
    return admin.ApiTokenList(
        tokens=[shown(record) for record in page],
        next_cursor=cursors.encode(page[-1].token_id) if more else None,
    )


async def revoke(call: calls.Call[None, routes.NoQuery]) -> calls.Reply:
    """Ends a token at once."""
    token_id = call.path["token_id"]
    now = call.now()

    async def work(tx: contract.Tx) -> calls.Changed:
        record = await tokens.find(tx, token_id=token_id)
        if record is None:
            raise refusals.Refusal("not-found", f"There is no API token {token_id}.")
        if not await tokens.revoke(tx, token_id=token_id, now=now):
            raise refusals.Refusal("conflict", f"The API token {token_id} was revoked before.")
        await events.append(tx, at=now, kind="token.revoked", subject=token_id, infra=record.infra)
        await call.record(
            tx,
            action="tokens.revoke",
            target=f"token:{token_id}",
            infra=record.infra,
            details={"name": record.name},
        )
        changes = [admin.Change(action="revoke", target=f"token {token_id}", detail=record.name)]
        return calls.Changed(changes=changes, answer=admin.Done(changes=changes))

    return await call.mutate(work)


def shown(record: tokens.TokenRecord) -> admin.ApiToken:
    """The record as lists show it."""
    return admin.ApiToken(
        token_id=record.token_id,
        name=record.name,
        permissions=sorted(record.permissions),
        infra=record.infra,
        created_at=record.created_at,
        created_by=record.created_by,
        expires_at=record.expires_at,
        revoked_at=record.revoked_at,
        last_used_at=record.last_used_at,
    )


def served() -> tuple[routes.Route, ...]:
    """The routes of this module."""
    one: dict[str, Any] = {"parameters": {"token_id": "The public id of the token, 16 hex digits."}}
    return (
        routes.Route(
            method="POST",
            path="/api/v1/tokens",
            summary="Make an API token; it is shown in this answer only.",
            handler=create,
            request=admin.CreateApiTokenRequest,
            answer=admin.CreateApiTokenAnswer,
            status=201,
            changes=True,
            secret_fields=("token",),
        ),
        routes.Route(
            method="GET",
            path="/api/v1/tokens",
            summary="List API tokens, without their secrets.",
            handler=list_page,
            query=routes.PageQuery,
            answer=admin.ApiTokenList,
        ),
        routes.Route(
            method="DELETE",
            path="/api/v1/tokens/{token_id}",
            summary="End an API token at once.",
            handler=revoke,
            answer=admin.Done,
            changes=True,
            problems=("not-found", "conflict"),
            **one,
        ),
    )
