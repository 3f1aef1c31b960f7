"""The append-only log of authenticated actions: read it, have its chain checked."""

from typing import TYPE_CHECKING

from enlist import calls, methods

if TYPE_CHECKING:
    from wire_protocol import admin


def list_(
    *,
    limit: int | None = None,
    cursor: str | None = None,
    infra: str | None = None,
    actor: str | None = None,
    action: str | None = None,
    since: str | None = None,
) -> "calls.Call[admin.ActionList]":
    """One page of the log, newest first. `since` is an RFC 3339 time."""
    return calls.Call(
        method="GET",
        path="/audit",
        answer="admin:ActionList",
        query={
            **calls.page_query(limit=limit, cursor=cursor, infra=infra),
            **calls.given(actor=actor, action=action, since=since),
        },
    )


def verify() -> "calls.Call[admin.ChainVerdict]":
    """Whether the chain of hashes is whole, and if not where it breaks."""
    return calls.Call(method="GET", path="/audit/verify", answer="admin:ChainVerdict")


class Audit(methods.Noun):
    """`client.audit`."""

    list = methods.Sync(list_)
    export = methods.Items(list_, of=lambda page: page.entries)
    verify = methods.Sync(verify)


class AsyncAudit(methods.AsyncNoun):
    """`client.audit`, to be awaited."""

    list = methods.Async(list_)
    export = methods.AsyncItems(list_, of=lambda page: page.entries)
    verify = methods.Async(verify)
