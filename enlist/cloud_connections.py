"""Connections: one credential at one provider, proved before it is kept and never shown again."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from enlist import calls, methods

if TYPE_CHECKING:
    from wire_protocol import admin
    from wire_protocol import cloud as models


def list_(
    *,
    limit: int | None = None,
    cursor: str | None = None,
    infra: str | None = None,
    provider: str | None = None,
) -> "calls.Call[models.ConnectionList]":
    """One page of the connections, by name."""
    query = calls.page_query(limit=limit, cursor=cursor, infra=infra)
    return calls.Call(
        method="GET",
        path="/cloud/connections",
        answer="cloud:ConnectionList",
        query={**query, **calls.given(provider=provider)},
    )


def get(name: str) -> "calls.Call[models.Connection]":
    """One connection; raises `NotFound`."""
    return calls.Call(method="GET", path=_path(name), answer="cloud:Connection")


def save(
    name: str,
    *,
    provider: str,
    kind: str,
    fields: Mapping[str, str] | None = None,
    settings: Mapping[str, str] | None = None,
) -> "calls.Call[models.SavedConnection]":
    """Keeps the connection once the credential has proved itself; answers what to set up there.

    For one that is there: a new credential for the same account. Raises `Invalid` where the
    provider refuses the credential, or its kind is not taken here.
    """
    credential = {"kind": kind, **calls.given(fields=dict(fields or {}))}
    return calls.Call(
        method="PUT",
        path=_path(name),
        answer="cloud:SavedConnection",
        body=calls.given(provider=provider, credential=credential, settings=dict(settings or {})),
        repeatable=True,
    )


def check(name: str, *, wanted: int | None = None) -> "calls.Call[models.SavedConnection]":
    """What the credential may do now and which rights it lacks; creates nothing.

    `fits` in the answer says how many of the `wanted` machines the account has room for.
    """
    return calls.Call(
        method="POST",
        path=f"{_path(name)}/check",
        answer="cloud:SavedConnection",
        query=calls.given(wanted=wanted),
        repeatable=True,
    )


def inventory(name: str) -> "calls.Call[models.Inventory]":
    """What the provider holds of this installation, asked now."""
    return calls.Call(
        method="POST",
        path=f"{_path(name)}/inventory",
        answer="cloud:Inventory",
        repeatable=True,
    )


def forget(name: str) -> "calls.Call[admin.Done]":
    """Forgets the credential; raises `Conflict` while something made through it is not gone."""
    return calls.Call(method="DELETE", path=_path(name), answer="admin:Done")


def consent(
    name: str,
    *,
    most_machines: int,
    most_hourly_micros: int,
    currency: str,
    days: int | None = None,
) -> "calls.Call[models.Connection]":
    """What may be spent through it without a person; in place of any former consent."""
    return calls.Call(
        method="PUT",
        path=f"{_path(name)}/consent",
        answer="cloud:Connection",
        body=calls.given(
            most_machines=most_machines,
            most_hourly_micros=most_hourly_micros,
            currency=currency,
            days=days,
        ),
        repeatable=True,
    )


def withdraw_consent(name: str) -> "calls.Call[models.Connection]":
    """From now on nothing is spent through it without a person."""
    return calls.Call(method="DELETE", path=f"{_path(name)}/consent", answer="cloud:Connection")


def _path(name: str) -> str:
    return f"/cloud/connections/{calls.part(name)}"


class Connections(methods.Noun):
    """`client.cloud.connections`."""

    list = methods.Sync(list_)
    iterate = methods.Items(list_, of=lambda page: page.connections)
    get = methods.Sync(get)
    save = methods.Sync(save)
    check = methods.Sync(check)
    inventory = methods.Sync(inventory)
    forget = methods.Sync(forget)
    consent = methods.Sync(consent)
    withdraw_consent = methods.Sync(withdraw_consent)


class AsyncConnections(methods.AsyncNoun):
    """`client.cloud.connections`, to be awaited."""

    list = methods.Async(list_)
    iterate = methods.AsyncItems(list_, of=lambda page: page.connections)
    get = methods.Async(get)
    save = methods.Async(save)
    check = methods.Async(check)
    inventory = methods.Async(inventory)
    forget = methods.Async(forget)
    consent = methods.Async(consent)
    withdraw_consent = methods.Async(withdraw_consent)
