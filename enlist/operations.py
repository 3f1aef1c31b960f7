"""Operations: what takes time, how it stands, and how it has come there."""

from typing import TYPE_CHECKING

from enlist import calls, methods

if TYPE_CHECKING:
    from wire_protocol import operations as models


def list_(
    *,
    limit: int | None = None,
    cursor: str | None = None,
    infra: str | None = None,
    node_id: str | None = None,
    is_open: bool | None = None,
) -> "calls.Call[models.OperationList]":
    """One page of the operations, newest first; `is_open` for those that have not ended."""
    query = calls.page_query(limit=limit, cursor=cursor, infra=infra)
    narrowed = calls.given(node_id=node_id, open=None if is_open is None else str(is_open).lower())
    return calls.Call(
        method="GET",
        path="/operations",
        answer="operations:OperationList",
        query={**query, **narrowed},
    )


def get(operation_id: str) -> "calls.Call[models.OperationDetails]":
    """One operation with its steps and parts; raises `NotFound`."""
    return calls.Call(
        method="GET",
        path=f"/operations/{calls.part(operation_id)}",
        answer="operations:OperationDetails",
    )


def retry(operation_id: str) -> "calls.Call[models.Operation]":
    """Begins a failed one again where it is `retryable`; raises `Conflict` elsewhere."""
    return _act(operation_id, verb="retry")


def cancel(operation_id: str) -> "calls.Call[models.Operation]":
    """Ends one that is open; what an order has made already is deleted and confirmed gone."""
    return _act(operation_id, verb="cancel")


def resolve(
    operation_id: str, *, choice: str, provider_ref: str | None = None
) -> "calls.Call[models.Operation]":
    """Decides an unresolved one: `adopt` (what `provider_ref` names), `retry` or `give-up`."""
    return calls.Call(
        method="POST",
        path=f"/operations/{calls.part(operation_id)}/resolve",
        answer="operations:Operation",
        body=calls.given(choice=choice, provider_ref=provider_ref),
        keyed=True,
    )


def _act(operation_id: str, *, verb: str) -> "calls.Call[models.Operation]":
    return calls.Call(
        method="POST",
        path=f"/operations/{calls.part(operation_id)}/{verb}",
        answer="operations:Operation",
        keyed=True,
    )


class Operations(methods.Noun):
    """`client.operations`."""

    list = methods.Sync(list_)
    iterate = methods.Items(list_, of=lambda page: page.operations)
    get = methods.Sync(get)
    retry = methods.Sync(retry)
    cancel = methods.Sync(cancel)
    resolve = methods.Sync(resolve)


class AsyncOperations(methods.AsyncNoun):
    """`client.operations`, to be awaited."""

    list = methods.Async(list_)
    iterate = methods.AsyncItems(list_, of=lambda page: page.operations)
    get = methods.Async(get)
    retry = methods.Async(retry)
    cancel = methods.Async(cancel)
    resolve = methods.Async(resolve)
