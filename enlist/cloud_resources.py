"""Volumes, snapshots and stable addresses of our own, and what belongs to nothing that is known.

Each change is an operation of its own, confirmed by the provider; `client.operations.get` follows.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from enlist import calls, methods

if TYPE_CHECKING:
    from wire_protocol import admin
    from wire_protocol import cloud_machines as models


def list_volumes(
    *,
    limit: int | None = None,
    cursor: str | None = None,
    infra: str | None = None,
    connection: str | None = None,
    label: Sequence[str] = (),
) -> "calls.Call[models.ChildList]":
    """One page, with each of those labels, of the volumes."""
    return _list(
        "volumes", limit=limit, cursor=cursor, infra=infra, connection=connection, label=label
    )


def list_snapshots(
    *,
    limit: int | None = None,
    cursor: str | None = None,
    infra: str | None = None,
    connection: str | None = None,
    label: Sequence[str] = (),
) -> "calls.Call[models.ChildList]":
    """One page, with each of those labels, of the snapshots."""
    return _list(
        "snapshots", limit=limit, cursor=cursor, infra=infra, connection=connection, label=label
    )


def list_addresses(
    *,
    limit: int | None = None,
    cursor: str | None = None,
    infra: str | None = None,
    connection: str | None = None,
    label: Sequence[str] = (),
) -> "calls.Call[models.ChildList]":
    """One page, with each of those labels, of the stable addresses."""
    return _list(
        "addresses", limit=limit, cursor=cursor, infra=infra, connection=connection, label=label
    )


def create_volume(
    name: str,
    *,
    connection: str,
    region: str,
    size_gigabytes: int,
    labels: Mapping[str, str] | None = None,
) -> "calls.Call[models.Begun]":
    """Has a volume made; it belongs to no machine until it is attached."""
    return _create(
        "volumes",
        name=name,
        connection=connection,
        region=region,
        size_gigabytes=size_gigabytes,
        labels=labels,
    )


def create_snapshot(
    name: str, *, machine: str, labels: Mapping[str, str] | None = None
) -> "calls.Call[models.Begun]":
    """Has a snapshot made of the machine of that node."""
    return _create("snapshots", name=name, machine=machine, labels=labels)


def create_address(
    name: str, *, connection: str, region: str, labels: Mapping[str, str] | None = None
) -> "calls.Call[models.Begun]":
    """Has a stable address reserved."""
    return _create("addresses", name=name, connection=connection, region=region, labels=labels)


def delete(kind: str, child_id: str) -> "calls.Call[models.Begun]":
    """Has it deleted and confirmed gone; `kind` is volumes, snapshots or addresses."""
    return calls.Call(
        method="DELETE", path=_path(kind, child_id), answer="cloud_machines:Begun", repeatable=True
    )


def attach(kind: str, child_id: str, *, machine: str) -> "calls.Call[models.Begun]":
    """Gives the volume or address to the machine of that node."""
    return calls.Call(
        method="POST",
        path=f"{_path(kind, child_id)}/attach",
        answer="cloud_machines:Begun",
        body={"machine": machine},
        keyed=True,
    )


def detach(kind: str, child_id: str) -> "calls.Call[models.Begun]":
    """Takes the volume or address from its machine."""
    return calls.Call(
        method="POST",
        path=f"{_path(kind, child_id)}/detach",
        answer="cloud_machines:Begun",
        keyed=True,
    )


def forget(kind: str, child_id: str, *, reason: str) -> "calls.Call[admin.Done]":
    """A person says that it is gone or not ours any more; nothing is asked of the provider."""
    return calls.Call(
        method="POST",
        path=f"{_path(kind, child_id)}/forget",
        answer="admin:Done",
        body={"reason": reason},
        keyed=True,
    )


def orphans(*, infra: str | None = None) -> "calls.Call[models.OrphanList]":
    """What carries this installation's id at a provider and belongs to nothing that is known."""
    return calls.Call(
        method="GET",
        path="/cloud/orphans",
        answer="cloud_machines:OrphanList",
        query=calls.given(infra=infra),
    )


def delete_orphan(*, connection: str, kind: str, provider_ref: str) -> "calls.Call[models.Begun]":
    """Has one deleted at its provider."""
    return calls.Call(
        method="POST",
        path="/cloud/orphans/delete",
        answer="cloud_machines:Begun",
        body={"connection": connection, "kind": kind, "provider_ref": provider_ref},
        keyed=True,
    )


def adopt_orphan(*, connection: str, provider_ref: str, node_id: str) -> "calls.Call[admin.Done]":
    """That machine is the one of this node; nothing is asked of the provider."""
    return calls.Call(
        method="POST",
        path="/cloud/orphans/adopt",
        answer="admin:Done",
        body={"connection": connection, "provider_ref": provider_ref, "node_id": node_id},
        keyed=True,
    )


def _list(
    kind: str,
    *,
    limit: int | None,
    cursor: str | None,
    infra: str | None,
    connection: str | None,
    label: Sequence[str],
) -> "calls.Call[models.ChildList]":
    query = calls.page_query(limit=limit, cursor=cursor, infra=infra, label=label)
    return calls.Call(
        method="GET",
        path=f"/cloud/{kind}",
        answer="cloud_machines:ChildList",
        query={**query, **calls.given(connection=connection)},
    )


def _create(
    kind: str, *, labels: Mapping[str, str] | None, **body: str | int
) -> "calls.Call[models.Begun]":
    return calls.Call(
        method="POST",
        path=f"/cloud/{kind}",
        answer="cloud_machines:Begun",
        body={**body, **calls.given(labels=dict(labels) if labels else None)},
        keyed=True,
    )


def _path(kind: str, child_id: str) -> str:
    return f"/cloud/{calls.part(kind)}/{calls.part(child_id)}"


class Resources(methods.Noun):
    """`client.cloud.resources`."""

    list_volumes = methods.Sync(list_volumes)
    list_snapshots = methods.Sync(list_snapshots)
    list_addresses = methods.Sync(list_addresses)
    create_volume = methods.Sync(create_volume)
    create_snapshot = methods.Sync(create_snapshot)
    create_address = methods.Sync(create_address)
    delete = methods.Sync(delete)
    attach = methods.Sync(attach)
    detach = methods.Sync(detach)
    forget = methods.Sync(forget)
    orphans = methods.Sync(orphans)
    delete_orphan = methods.Sync(delete_orphan)
    adopt_orphan = methods.Sync(adopt_orphan)


class AsyncResources(methods.AsyncNoun):
    """`client.cloud.resources`, to be awaited."""

    list_volumes = methods.Async(list_volumes)
    list_snapshots = methods.Async(list_snapshots)
    list_addresses = methods.Async(list_addresses)
    create_volume = methods.Async(create_volume)
    create_snapshot = methods.Async(create_snapshot)
    create_address = methods.Async(create_address)
    delete = methods.Async(delete)
    attach = methods.Async(attach)
    detach = methods.Async(detach)
    forget = methods.Async(forget)
    orphans = methods.Async(orphans)
    delete_orphan = methods.Async(delete_orphan)
    adopt_orphan = methods.Async(adopt_orphan)
