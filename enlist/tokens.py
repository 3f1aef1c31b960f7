"""API tokens: create with permissions, list, revoke."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from enlist import calls, methods

if TYPE_CHECKING:
    from wire_protocol import admin

DEFAULT_DAYS = 90


def create(
    name: str, *, permissions: Sequence[str], ttl_days: int | None = DEFAULT_DAYS
) -> "calls.Call[admin.CreateApiTokenAnswer]":
    """Creates a token; the answer alone carries it, once. `ttl_days` None: it never expires."""
    return calls.Call(
        method="POST",
        path="/tokens",
        answer="admin:CreateApiTokenAnswer",
        body={"name": name, "permissions": list(permissions), "ttl_days": ttl_days},
        keyed=True,
    )


def list_(
    *, limit: int | None = None, cursor: str | None = None, infra: str | None = None
) -> "calls.Call[admin.ApiTokenList]":
    """One page of the tokens; none shows its secret."""
    return calls.Call(
        method="GET",
        path="/tokens",
        answer="admin:ApiTokenList",
        query=calls.page_query(limit=limit, cursor=cursor, infra=infra),
    )


def revoke(token_id: str) -> "calls.Call[admin.Done]":
    """Ends a token at once; raises `NotFound`."""
    return calls.Call(method="DELETE", path=f"/tokens/{calls.part(token_id)}", answer="admin:Done")


class Tokens(methods.Noun):
    """`client.tokens`."""

    create = methods.Sync(create)
    list = methods.Sync(list_)
    iterate = methods.Items(list_, of=lambda page: page.tokens)
    revoke = methods.Sync(revoke)


class AsyncTokens(methods.AsyncNoun):
    """`client.tokens`, to be awaited."""

    create = methods.Async(create)
    list = methods.Async(list_)
    iterate = methods.AsyncItems(list_, of=lambda page: page.tokens)
    revoke = methods.Async(revoke)
