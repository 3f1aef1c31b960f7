"""What hangs on Hetzner machines or stands beside them: volumes, snapshots, primary addresses.

All but snapshots have names that are unique in the project, so a repeated order finds what the
first one made; ours is known by its labels.

Known limit: an address is taken from a machine only while that is off, or with its end; for giving
one see `swaps`.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from provisioning import contract, outcomes
from provisioning.hetzner import api as api_kit
from provisioning.hetzner import calls, labels, reading, shapes

_KIND = contract.ChildKind
_NUMBER: Final = re.compile(r"[0-9]{1,20}")


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


KINDS: Final[Mapping[contract.ChildKind, _Kind]] = {
    _KIND.VOLUME: _Kind(
        path="/volumes",
        one="volume",
        many="volumes",
        listing=calls.LIST_VOLUMES,
        getting=calls.GET_VOLUME,
        deleting=calls.DELETE_VOLUME,
        read=reading.volume,
    ),
    _KIND.SNAPSHOT: _Kind(
        path="/images",
        one="image",
        many="images",
        listing=calls.LIST_SNAPSHOTS,
        getting=calls.GET_SNAPSHOT,
        deleting=calls.DELETE_SNAPSHOT,
        read=reading.snapshot,
    ),
    _KIND.ADDRESS: _Kind(
        path="/primary_ips",
        one="primary_ip",
        many="primary_ips",
        listing=calls.LIST_ADDRESSES,
        getting=calls.GET_ADDRESS,
        deleting=calls.DELETE_ADDRESS,
        read=reading.address,
    ),
    _KIND.SSH_KEY: _Kind(
        path="/ssh_keys",
        one="ssh_key",
        many="ssh_keys",
        listing=calls.LIST_SSH_KEYS,
        getting=calls.GET_SSH_KEY,
        deleting=calls.DELETE_SSH_KEY,
        read=reading.ssh_key,
    ),
    _KIND.SECURITY_GROUP: _Kind(
        path="/firewalls",
        one="firewall",
        many="firewalls",
        listing=calls.LIST_FIREWALLS,
        getting=calls.GET_FIREWALL,
        deleting=calls.DELETE_FIREWALL,
        read=reading.firewall,
    ),
}


async def describe(api: api_kit.Api, child: contract.Child) -> contract.Child | None:
    """The child as it is now; raises `UnreadableRef` for what can be none."""
    kind = _kind_of(child)
    told = await api.get_or_none(kind.getting, f"{kind.path}/{child.ref}")
    return None if told is None else shapes.shaped(kind.getting, lambda: kind.read(told[kind.one]))


async def delete(api: api_kit.Api, child: contract.Child) -> None:
    """Has it deleted; what is gone already is fine."""
    kind = _kind_of(child)
    try:
        await api.send(kind.deleting, f"{kind.path}/{child.ref}")
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
    body = {"size": gigabytes, "name": name, "labels": labels.of(owner), "location": region}
    return await made(api, _KIND.VOLUME, calls.CREATE_VOLUME, body, owner=owner)


async def create_address(
    api: api_kit.Api, *, owner: contract.Owner, name: str, region: str
) -> contract.Child:
    """A stable IPv4 address in this location, which outlives every machine."""
    body = {
        "type": "ipv4",
        "name": name,
        "location": region,
        "assignee_type": "server",
        "auto_delete": False,
        "labels": labels.of(owner),
    }
    return await made(api, _KIND.ADDRESS, calls.CREATE_ADDRESS, body, owner=owner)


async def create_snapshot(
    api: api_kit.Api, *, owner: contract.Owner, name: str, server: int
) -> contract.Child:
    """A snapshot of this machine's disk. Its name is not unique, so ours is looked for first."""
    earlier = await listed(api, _KIND.SNAPSHOT, selector=labels.selector(owner))
    if earlier:
        return shapes.shaped(calls.LIST_SNAPSHOTS, lambda: reading.snapshot(earlier[0]))

    body = {"description": name, "type": "snapshot", "labels": labels.of(owner)}
    told = await api.send(
        calls.CREATE_SNAPSHOT, f"/servers/{server}/actions/create_image", body=body
    )
    return shapes.shaped(calls.CREATE_SNAPSHOT, lambda: reading.snapshot(told["image"]))


async def attach(api: api_kit.Api, child: contract.Child, *, to: str) -> None:
    """Gives the volume to this machine; where it has it already, nothing is sent."""
    require(to, what="machine")
    now = await describe(api, child)
    if now is None:
        raise _gone(child)
    if now.attached_to == to:
        return
    await api.send(
        calls.ATTACH_VOLUME,
        f"/volumes/{child.ref}/actions/attach",
        body={"server": int(to), "automount": False},
    )


async def detach(api: api_kit.Api, child: contract.Child) -> None:
    """Takes it away from whatever has it; where nothing has it, nothing is sent."""
    now = await describe(api, child)
    if now is None or now.attached_to is None:
        return
    if child.kind is _KIND.VOLUME:
        await api.send(calls.DETACH_VOLUME, f"/volumes/{child.ref}/actions/detach")
        return
    try:
        await api.send(calls.UNASSIGN_ADDRESS, f"/primary_ips/{child.ref}/actions/unassign")
    except outcomes.Fault as fault:
        if fault.code != "server_not_stopped":
            raise
        raise outcomes.Fault(
            f"Hetzner Cloud takes an address only from a machine that is off, and the one that has "
            f"it (server {now.attached_to}) runs. Turn that off in the provider's console, then "
            "retry; or delete the machine: the address stays.",
            outcome=fault.outcome,
            topic=fault.topic,
            code=fault.code,
        ) from None


async def made(
    api: api_kit.Api,
    kind: contract.ChildKind,
    call: contract.ApiCall,
    body: Mapping[str, Any],
    *,
    owner: contract.Owner,
) -> contract.Child:
    """What this order makes; where its name is taken already, what has it, if that is ours."""
    row, name = KINDS[kind], str(body["name"])
    try:
        told = await api.send(call, row.path, body=body)
        return shapes.shaped(call, lambda: row.read(told[row.one]))
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


def require(ref: str, *, what: str) -> int:
    """The number that this id is; raises `UnreadableRef`."""
    return int(outcomes.require_ref(_NUMBER, ref, provider="Hetzner Cloud", what=what))


def _kind_of(child: contract.Child) -> _Kind:
    kind = KINDS.get(child.kind)
    if kind is None:
        raise outcomes.Fault(
            f"Hetzner Cloud has no {child.kind} apart from its machine.",
            outcome=outcomes.Outcome.NOT_DONE_PERMANENT,
            topic=outcomes.Topic.INPUT,
        )
    require(child.ref, what=child.kind)
    return kind


def _gone(child: contract.Child) -> outcomes.Fault:
    return outcomes.Fault(
        f"The {child.kind} {child.ref} is not there any more.",
        outcome=outcomes.Outcome.NOT_DONE_PERMANENT,
        topic=outcomes.Topic.CATALOGUE,
    )
