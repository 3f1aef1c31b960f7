"""What hangs on Hetzner machines or stands beside them: volumes, snapshots, primary addresses.

All but snapshots have names that are unique in the project, so a repeated order finds what the
first one made; ours is known by its labels.

Known limit: an address can be given to a machine, or taken from it, only while that is off.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Final

import hcloud
from hcloud.firewalls.domain import Firewall
from hcloud.images.domain import Image
from hcloud.locations.domain import Location
from hcloud.primary_ips.domain import PrimaryIP
from hcloud.servers.domain import Server
from hcloud.ssh_keys.domain import SSHKey
from hcloud.volumes.domain import Volume

from provisioning import contract, outcomes
from provisioning.hetzner import api as api_kit
from provisioning.hetzner import calls, labels, reading, shapes

_KIND = contract.ChildKind


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """How one kind is spoken of: its path, the keys of one and of many, and its calls."""

    path: str
    one: str
    many: str
    listing: contract.ApiCall
    getting: contract.ApiCall
    deleting: contract.ApiCall
    read: Callable[[Mapping[str, Any]], contract.Child]
    delete: Callable[[hcloud.Client, int], object]


KINDS: Final[Mapping[contract.ChildKind, _Kind]] = {
    _KIND.VOLUME: _Kind(
        path="/volumes",
        one="volume",
        many="volumes",
        listing=calls.LIST_VOLUMES,
        getting=calls.GET_VOLUME,
        deleting=calls.DELETE_VOLUME,
        read=reading.volume,
        delete=lambda client, ref: client.volumes.delete(Volume(id=ref)),
    ),
    _KIND.SNAPSHOT: _Kind(
        path="/images",
        one="image",
        many="images",
        listing=calls.LIST_SNAPSHOTS,
        getting=calls.GET_SNAPSHOT,
        deleting=calls.DELETE_SNAPSHOT,
        read=reading.snapshot,
        delete=lambda client, ref: client.images.delete(Image(id=ref)),
    ),
    _KIND.ADDRESS: _Kind(
        path="/primary_ips",
        one="primary_ip",
        many="primary_ips",
        listing=calls.LIST_ADDRESSES,
        getting=calls.GET_ADDRESS,
        deleting=calls.DELETE_ADDRESS,
        read=reading.address,
        delete=lambda client, ref: client.primary_ips.delete(PrimaryIP(id=ref)),
    ),
    _KIND.SSH_KEY: _Kind(
        path="/ssh_keys",
        one="ssh_key",
        many="ssh_keys",
        listing=calls.LIST_SSH_KEYS,
        getting=calls.GET_SSH_KEY,
        deleting=calls.DELETE_SSH_KEY,
        read=reading.ssh_key,
        delete=lambda client, ref: client.ssh_keys.delete(SSHKey(id=ref)),
    ),
    _KIND.SECURITY_GROUP: _Kind(
        path="/firewalls",
        one="firewall",
        many="firewalls",
        listing=calls.LIST_FIREWALLS,
        getting=calls.GET_FIREWALL,
        deleting=calls.DELETE_FIREWALL,
        read=reading.firewall,
        delete=lambda client, ref: client.firewalls.delete(Firewall(id=ref)),
    ),
}


async def describe(api: api_kit.Api, child: contract.Child) -> contract.Child | None:
    """The child as it is now."""
    kind = KINDS.get(child.kind)
    if kind is None or not child.ref.isdecimal():
        return None
    told = await api.get_or_none(kind.getting, f"{kind.path}/{child.ref}")
    return None if told is None else shapes.shaped(kind.getting, lambda: kind.read(told[kind.one]))


async def delete(api: api_kit.Api, child: contract.Child) -> None:
    """Has it deleted; what is gone already is fine."""
    kind = KINDS.get(child.kind)
    if kind is None or not child.ref.isdecimal():
        return
    ref = int(child.ref)
    try:
        await api.ask(kind.deleting, lambda client: kind.delete(client, ref))
    except outcomes.Fault as fault:
        if fault.code == "not_found":
            return
        raise


async def listed(
    api: api_kit.Api, kind: contract.ChildKind, *, selector: str
) -> list[Mapping[str, Any]]:
    """Everything of this kind with these labels, all pages, as the provider tells it."""
    row = KINDS[kind]
    params = {"label_selector": selector}
    if kind is _KIND.SNAPSHOT:
        params["type"] = "snapshot"
    return list(await api.pages(row.listing, row.path, of=row.many, params=params))


async def create_volume(
    api: api_kit.Api, *, owner: contract.Owner, name: str, region: str, gigabytes: int
) -> contract.Child:
    """A volume in this location, attached to nothing."""

    def make(client: hcloud.Client) -> contract.Child:
        made = client.volumes.create(
            size=gigabytes,
            name=name,
            labels=labels.mistyped(owner),
            location=Location(name=region),
        )
        return contract.Child(
            kind=_KIND.VOLUME,
            ref=str(made.volume.id),
            name=name,
            region=region,
            keep=True,
            owner=owner,
            size_gigabytes=gigabytes,
        )

    return await made(api, _KIND.VOLUME, calls.CREATE_VOLUME, make, owner=owner, name=name)


async def create_address(
    api: api_kit.Api, *, owner: contract.Owner, name: str, region: str
) -> contract.Child:
    """A stable IPv4 address in this location, which outlives every machine."""

    def make(client: hcloud.Client) -> contract.Child:
        body = {
            "type": "ipv4",
            "name": name,
            "location": region,
            "assignee_type": "server",  # required, and not sent by the library's own method
            "auto_delete": False,
            "labels": labels.of(owner),
        }
        made = client.request("POST", "/primary_ips", json=body)["primary_ip"]
        return contract.Child(
            kind=_KIND.ADDRESS,
            ref=str(made["id"]),
            name=name,
            region=region,
            keep=True,
            owner=owner,
            address=str(made["ip"]),
        )

    return await made(api, _KIND.ADDRESS, calls.CREATE_ADDRESS, make, owner=owner, name=name)


async def create_snapshot(
    api: api_kit.Api, *, owner: contract.Owner, name: str, server: int
) -> contract.Child:
    """A snapshot of this machine's disk. Its name is not unique, so ours is looked for first."""
    earlier = await listed(api, _KIND.SNAPSHOT, selector=labels.selector(owner))
    if earlier:
        return shapes.shaped(calls.LIST_SNAPSHOTS, lambda: reading.snapshot(earlier[0]))

    def make(client: hcloud.Client) -> contract.Child:
        made = client.servers.create_image(
            Server(id=server), description=name, type="snapshot", labels=labels.of(owner)
        )
        return contract.Child(
            kind=_KIND.SNAPSHOT, ref=str(made.image.id), name=name, keep=True, owner=owner
        )

    return await made(api, _KIND.SNAPSHOT, calls.CREATE_SNAPSHOT, make, owner=owner, name=name)


async def attach(api: api_kit.Api, child: contract.Child, *, to: str) -> None:
    """Gives the volume or address to this machine; where it has it already, nothing is sent."""
    now = await describe(api, child)
    if now is None:
        raise _gone(child)
    if now.attached_to == to:
        return
    ref, server = int(child.ref), int(to)
    if child.kind is _KIND.VOLUME:
        await api.ask(
            calls.ATTACH_VOLUME,
            lambda client: client.volumes.attach(
                Volume(id=ref), Server(id=server), automount=False
            ),
        )
    else:
        await api.ask(
            calls.ASSIGN_ADDRESS,
            lambda client: client.primary_ips.assign(
                PrimaryIP(id=ref), assignee_id=server, assignee_type="server"
            ),
        )


async def detach(api: api_kit.Api, child: contract.Child) -> None:
    """Takes it away from whatever has it; where nothing has it, nothing is sent."""
    now = await describe(api, child)
    if now is None or now.attached_to is None:
        return
    ref = int(child.ref)
    if child.kind is _KIND.VOLUME:
        await api.ask(calls.DETACH_VOLUME, lambda client: client.volumes.detach(Volume(id=ref)))
    else:
        await api.ask(
            calls.UNASSIGN_ADDRESS,
            lambda client: client.primary_ips.unassign(PrimaryIP(id=ref)),
        )


async def made(
    api: api_kit.Api,
    kind: contract.ChildKind,
    call: contract.ApiCall,
    make: Callable[[hcloud.Client], contract.Child],
    *,
    owner: contract.Owner,
    name: str,
) -> contract.Child:
    """What `make` makes; where the name is taken already, what has it, if that is ours."""
    row = KINDS[kind]
    try:
        return await api.ask(call, make)
    except outcomes.Fault as fault:
        if fault.code != "uniqueness_error":
            raise
        found = await api.pages(row.listing, row.path, of=row.many, params={"name": name})
        children = shapes.shaped(row.listing, lambda: [row.read(one) for one in found])
        mine = [
            one
            for one in children
            if one.owner is not None
            and (one.owner.installation, one.owner.operation)
            == (owner.installation, owner.operation)
        ]
        if mine:
            return mine[0]
        raise outcomes.Fault(
            f"There is another {kind} named {name} in the project, and it is not ours.",
            outcome=outcomes.Outcome.EXISTS_FOREIGN if children else fault.outcome,
            topic=outcomes.Topic.STATE,
            code=fault.code,
            ref=children[0].ref if children else None,
        ) from None


def _gone(child: contract.Child) -> outcomes.Fault:
    return outcomes.Fault(
        f"The {child.kind} {child.ref} is not there any more.",
        outcome=outcomes.Outcome.NOT_DONE_PERMANENT,
        topic=outcomes.Topic.CATALOGUE,
    )
