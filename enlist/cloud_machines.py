"""Machines: ordered from a provider, enlisted by themselves, deleted until confirmed gone.

What takes time answers at once with an operation: `client.operations.get` says how it goes. An
order after a lost answer is asked for again under the same key, so it is never made twice.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from enlist import calls, methods

if TYPE_CHECKING:
    from wire_protocol import admin
    from wire_protocol import cloud_machines as models


def list_(
    *,
    limit: int | None = None,
    cursor: str | None = None,
    infra: str | None = None,
    connection: str | None = None,
    ended: bool = False,
    label: Sequence[str] = (),
) -> "calls.Call[models.MachineList]":
    """One page of the machines, newest first; `ended` for those that are gone as well.

    `label` narrows to those ordered with each of these, `key=value` or `key`.
    """
    query = calls.page_query(limit=limit, cursor=cursor, infra=infra, label=label)
    narrowed = calls.given(connection=connection, ended="true" if ended else None)
    return calls.Call(
        method="GET",
        path="/cloud/machines",
        answer="cloud_machines:MachineList",
        query={**query, **narrowed},
    )


def get(machine: str) -> "calls.Call[models.MachineDetails]":
    """The machine of that node, or of that machine id, with what hangs on it."""
    return calls.Call(method="GET", path=_path(machine), answer="cloud_machines:MachineDetails")


def refresh(machine: str) -> "calls.Call[models.MachineDetails]":
    """Has the provider asked now for the machine and everything that hangs on it."""
    return calls.Call(
        method="POST",
        path=f"{_path(machine)}/refresh",
        answer="cloud_machines:MachineDetails",
        repeatable=True,
    )


def console(machine: str) -> "calls.Call[models.Console]":
    """What its console showed last; raises `Conflict` where its provider has none to read."""
    return calls.Call(
        method="GET", path=f"{_path(machine)}/console", answer="cloud_machines:Console"
    )


def create(
    node_id: str,
    *,
    provider: str,
    connection: str | None = None,
    region: str | None = None,
    tier: str | None = None,
    size: str | None = None,
    untested: bool = False,
    image: str | None = None,
    role: str | None = None,
    network: str | None = None,
    subnet: str | None = None,
    nested_virt: bool = False,
    disk_gigabytes: int | None = None,
    public_ipv4: bool = True,
    public_ipv6: bool = True,
    labels: Mapping[str, str] | None = None,
    first_boot: str | None = None,
    ssh_key: str | None = None,
    ssh_from: Sequence[str] = (),
    ssh_seconds: int | None = None,
    purpose: str | None = None,
) -> "calls.Call[models.Ordered]":
    """Orders a machine that enlists itself as that node; raises `Conflict` where a cap is reached.

    `ssh_key` is a public key; without `ssh_from` (networks) nothing is opened for it.
    """
    ssh = None
    if ssh_key is not None:
        ssh = calls.given(public_key=ssh_key, sources=list(ssh_from), seconds=ssh_seconds)
    return calls.Call(
        method="POST",
        path="/cloud/machines",
        answer="cloud_machines:Ordered",
        body=calls.given(
            node_id=node_id,
            provider=provider,
            connection=connection,
            region=region,
            tier=tier,
            size=size,
            untested=untested or None,
            image=image,
            role=role,
            network=network,
            subnet=subnet,
            nested_virt=nested_virt or None,
            disk_gigabytes=disk_gigabytes,
            public_ipv4=None if public_ipv4 else False,
            public_ipv6=None if public_ipv6 else False,
            labels=dict(labels) if labels else None,
            first_boot=first_boot,
            ssh=ssh,
            purpose=purpose,
        ),
        keyed=True,
    )


def delete(machine: str, *, keep_machine: bool = False) -> "calls.Call[models.Begun]":
    """Drains, revokes, has it deleted and confirmed gone; `keep_machine` ends only the node."""
    return calls.Call(
        method="DELETE",
        path=_path(machine),
        answer="cloud_machines:Begun",
        query=calls.given(keep_machine="true" if keep_machine else None),
    )


def reboot(machine: str) -> "calls.Call[models.Begun]":
    """Has the provider restart it."""
    return calls.Call(
        method="POST", path=f"{_path(machine)}/reboot", answer="cloud_machines:Begun", keyed=True
    )


def forget(machine: str, *, reason: str) -> "calls.Call[admin.Done]":
    """A person says that it is gone or not ours any more; nothing is asked of the provider."""
    return calls.Call(
        method="POST",
        path=f"{_path(machine)}/forget",
        answer="admin:Done",
        body={"reason": reason},
        keyed=True,
    )


def resume_template(template: str) -> "calls.Call[admin.Done]":
    """Lets machines be ordered again of which too many failed in a row."""
    return calls.Call(
        method="POST",
        path=f"/cloud/templates/{calls.part(template)}/resume",
        answer="admin:Done",
        keyed=True,
    )


def _path(machine: str) -> str:
    return f"/cloud/machines/{calls.part(machine)}"


class Machines(methods.Noun):
    """`client.cloud.machines`."""

    list = methods.Sync(list_)
    iterate = methods.Items(list_, of=lambda page: page.machines)
    get = methods.Sync(get)
    refresh = methods.Sync(refresh)
    console = methods.Sync(console)
    create = methods.Sync(create)
    delete = methods.Sync(delete)
    reboot = methods.Sync(reboot)
    forget = methods.Sync(forget)
    resume_template = methods.Sync(resume_template)


class AsyncMachines(methods.AsyncNoun):
    """`client.cloud.machines`, to be awaited."""

    list = methods.Async(list_)
    iterate = methods.AsyncItems(list_, of=lambda page: page.machines)
    get = methods.Async(get)
    refresh = methods.Async(refresh)
    console = methods.Async(console)
    create = methods.Async(create)
    delete = methods.Async(delete)
    reboot = methods.Async(reboot)
    forget = methods.Async(forget)
    resume_template = methods.Async(resume_template)
