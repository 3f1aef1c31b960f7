"""Volumes, snapshots, reserved addresses and SSH keys at DigitalOcean.

Creating looks first for what an earlier try of the same order may have made, by its name and owner;
so a lost answer makes no second volume or snapshot. Data outlives machines: nothing here is deleted
but by name.

Known limit: a reserved address carries neither name nor tag, so one whose creating was not answered
can be told from others only by a person, in the list of addresses without a machine.
"""

import re
from typing import Any, Final

from provisioning import answers, contract, outcomes, packed_owner, shaped
from provisioning.digitalocean import calls, closing, reading
from provisioning.digitalocean import client as client_kit

_KIND = contract.ChildKind
_NAME: Final = "DigitalOcean"
_PENDING: Final = "pending"
_NUMBER: Final = re.compile(r"[0-9]{1,20}")
_ID: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{0,63}")
_REFS: Final = {
    _KIND.VOLUME: _ID,
    _KIND.SNAPSHOT: re.compile(rf"(?:{_PENDING}:[0-9]{{1,20}}|{_ID.pattern})"),
    _KIND.ADDRESS: re.compile(r"[0-9A-Fa-f][0-9A-Fa-f.:]{1,44}"),
    _KIND.SSH_KEY: _NUMBER,
    _KIND.SECURITY_GROUP: _ID,
}


async def every(client: client_kit.Client) -> list[contract.Child]:
    """All of the account, all pages, ours and others'."""
    volumes = await client.every(calls.VOLUMES, "/v2/volumes", "volumes")
    snapshots = await client.every(calls.SNAPSHOTS, "/v2/snapshots", "snapshots")
    addresses = await client.every(calls.ADDRESSES, "/v2/reserved_ips", "reserved_ips")
    keys = await client.every(calls.KEYS, "/v2/account/keys", "ssh_keys")
    firewalls = await closing.firewalls(client)
    with shaped.reading("What lists beside machines tell"):
        return [
            *(reading.volume(row) for row in volumes),
            *(reading.snapshot(row) for row in snapshots),
            *(reading.address(row) for row in addresses),
            *(reading.ssh_key(row) for row in keys),
            *(reading.firewall(row) for row in firewalls),
        ]


async def companions(client: client_kit.Client, ref: str) -> tuple[contract.Child, ...]:
    """What would outlive this droplet; nothing where the token may not see it."""
    path = f"/v2/droplets/{ref}/destroy_with_associated_resources"
    try:
        body = await found(client, calls.COMPANIONS, path)
    except outcomes.Fault as fault:
        if fault.topic is not outcomes.Topic.RIGHTS:
            raise
        body = None
    with shaped.reading(calls.COMPANIONS.name):
        return reading.companions({} if body is None else body, ref=ref)


async def describe(client: client_kit.Client, child: contract.Child) -> contract.Child | None:
    """The child as it is now; None where it is gone.

    A snapshot of a machine has no id until it is finished: until then its ref is its action's, and
    it is a fault with topic `STATE`. Only an action that has failed has made none.
    """
    _require(child)
    if child.kind is _KIND.SNAPSHOT and child.ref.startswith(f"{_PENDING}:"):
        return await _taken(client, child)
    call, path, key, read = {
        _KIND.VOLUME: (calls.VOLUME, f"/v2/volumes/{child.ref}", "volume", reading.volume),
        _KIND.SNAPSHOT: (
            calls.SNAPSHOT,
            f"/v2/snapshots/{child.ref}",
            "snapshot",
            reading.snapshot,
        ),
        _KIND.ADDRESS: (
            calls.ADDRESS,
            f"/v2/reserved_ips/{child.ref}",
            "reserved_ip",
            reading.address,
        ),
        _KIND.SSH_KEY: (calls.KEY, f"/v2/account/keys/{child.ref}", "ssh_key", reading.ssh_key),
        _KIND.SECURITY_GROUP: (
            calls.FIREWALL,
            f"/v2/firewalls/{child.ref}",
            "firewall",
            reading.firewall,
        ),
    }[child.kind]
    body = await found(client, call, path)
    if body is None:
        return None
    with shaped.reading(call.name):
        return read(body[key])


async def delete(client: client_kit.Client, child: contract.Child) -> None:
    """Has it deleted; gone already is done. Attached yet: a fault with topic `STATE`."""
    ref = _require(child)
    if child.kind is _KIND.SNAPSHOT and ref.startswith(f"{_PENDING}:"):
        now = await _taken(client, child)
        if now is None:
            return
        ref = now.ref
    call, path = {
        _KIND.VOLUME: (calls.DELETE_VOLUME, f"/v2/volumes/{ref}"),
        _KIND.SNAPSHOT: (calls.DELETE_SNAPSHOT, f"/v2/snapshots/{ref}"),
        _KIND.ADDRESS: (calls.DELETE_ADDRESS, f"/v2/reserved_ips/{ref}"),
        _KIND.SSH_KEY: (calls.DELETE_KEY, f"/v2/account/keys/{ref}"),
        _KIND.SECURITY_GROUP: (calls.DELETE_FIREWALL, f"/v2/firewalls/{ref}"),
    }[child.kind]
    try:
        await client.send(call, path)
    except outcomes.Fault as fault:
        if fault.code != "not_found":
            raise


async def create(
    client: client_kit.Client,
    kind: contract.ChildKind,
    *,
    owner: contract.Owner,
    name: str,
    region: str,
    size_gigabytes: int | None,
    of: str | None,
) -> contract.Child:
    """A volume, a snapshot of `of`, or a reserved address; what is there already is given back."""
    if kind is _KIND.VOLUME:
        return await _create_volume(
            client, owner=owner, name=name, region=region, size_gigabytes=size_gigabytes or 1
        )
    if kind is _KIND.SNAPSHOT and of is not None:
        return await _create_snapshot(client, owner=owner, name=name, of=of, region=region)
    if kind is _KIND.ADDRESS:
        body = await client.send(calls.CREATE_ADDRESS, "/v2/reserved_ips", body={"region": region})
        with shaped.reading(calls.CREATE_ADDRESS.name):
            return reading.address(body["reserved_ip"])
    raise _cannot(f"DigitalOcean cannot make a {kind} this way.")


async def attach(client: client_kit.Client, child: contract.Child, *, to: str) -> None:
    """Gives the volume or address to the droplet; it has it already: done."""
    outcomes.require_ref(_NUMBER, to, provider=_NAME)
    now = await describe(client, child)
    if now is not None and now.attached_to == to:
        return
    if child.kind is _KIND.ADDRESS:
        await _assign(client, child, {"type": "assign", "droplet_id": int(to)})
        return
    await _volume_action(client, child, kind="attach", droplet=to)


async def detach(client: client_kit.Client, child: contract.Child) -> None:
    """Takes it from whatever has it; nothing has it: done."""
    now = await describe(client, child)
    if now is None or now.attached_to is None:
        return
    if child.kind is _KIND.ADDRESS:
        await _assign(client, child, {"type": "unassign"})
        return
    await _volume_action(client, now, kind="detach", droplet=now.attached_to)


async def found(client: client_kit.Client, call: contract.ApiCall, path: str) -> Any:
    """The JSON at this path, None where the provider says clearly that there is nothing."""
    try:
        body = await client.send(call, path)
    except outcomes.Fault as fault:
        if fault.code == "not_found":
            return None
        raise
    if body is None:  # a success without a word is no word that it is gone
        raise answers.unanswered(call.name, "a success without a body")
    return body


async def _create_volume(
    client: client_kit.Client,
    *,
    owner: contract.Owner,
    name: str,
    region: str,
    size_gigabytes: int,
) -> contract.Child:
    there = await client.every(calls.VOLUMES, "/v2/volumes", "volumes", name=name, region=region)
    for row in there:
        child = reading.volume(row)
        if child.owner == owner:
            return child
    body = await client.send(
        calls.CREATE_VOLUME,
        "/v2/volumes",
        body={
            "name": name,
            "region": region,
            "size_gigabytes": size_gigabytes,
            "tags": packed_owner.as_tags(owner),
        },
    )
    with shaped.reading(calls.CREATE_VOLUME.name):
        return reading.volume(body["volume"])


async def _create_snapshot(
    client: client_kit.Client, *, owner: contract.Owner, name: str, of: str, region: str
) -> contract.Child:
    outcomes.require_ref(_ID, of, provider=_NAME, what="machine or volume")
    for row in await client.every(calls.SNAPSHOTS, "/v2/snapshots", "snapshots"):
        child = reading.snapshot(row)
        if child.owner == owner and child.name == name:
            return child
    if not of.isdecimal():
        body = await client.send(
            calls.SNAPSHOT_VOLUME,
            f"/v2/volumes/{of}/snapshots",
            body={"name": name, "tags": packed_owner.as_tags(owner)},
        )
        with shaped.reading(calls.SNAPSHOT_VOLUME.name):
            return reading.snapshot(body["snapshot"])
    body = await client.send(
        calls.SNAPSHOT_DROPLET,
        f"/v2/droplets/{of}/actions",
        body={"type": "snapshot", "name": f"{name} {packed_owner.as_line(owner)}"},
    )
    with shaped.reading(calls.SNAPSHOT_DROPLET.name):
        action = body["action"]["id"]
    return contract.Child(
        kind=_KIND.SNAPSHOT,
        ref=f"{_PENDING}:{action}",
        name=name,
        region=region,
        keep=True,
        owner=owner,
    )


async def _taken(client: client_kit.Client, child: contract.Child) -> contract.Child | None:
    """The snapshot that this action takes, by owner and name; None: the action has failed."""
    ref = child.ref.removeprefix(f"{_PENDING}:")
    told = await found(client, calls.ACTION, f"/v2/actions/{ref}")
    for row in await client.every(
        calls.SNAPSHOTS, "/v2/snapshots", "snapshots", resource_type="droplet"
    ):
        there = reading.snapshot(row)
        if there.owner is not None and there.owner == child.owner and there.name == child.name:
            return there
    with shaped.reading(calls.ACTION.name):
        status = "unknown" if told is None else str(told["action"]["status"])
    if status == "errored":
        return None
    raise outcomes.Fault(
        f"DigitalOcean does not show the snapshot yet that its action {ref} takes ({status}).",
        outcome=outcomes.Outcome.NOT_DONE_RETRYABLE,
        topic=outcomes.Topic.STATE,
    )


async def _volume_action(
    client: client_kit.Client, child: contract.Child, *, kind: str, droplet: str
) -> None:
    await client.send(
        calls.VOLUME_ACTION,
        f"/v2/volumes/{child.ref}/actions",
        body={"type": kind, "droplet_id": int(droplet), "region": child.region},
    )


async def _assign(client: client_kit.Client, child: contract.Child, body: dict[str, Any]) -> None:
    await client.send(calls.ADDRESS_ACTION, f"/v2/reserved_ips/{child.ref}/actions", body=body)


def _require(child: contract.Child) -> str:
    pattern = _REFS[_offered(child.kind)]
    return outcomes.require_ref(pattern, child.ref, provider=_NAME, what=child.kind)


def _offered(kind: contract.ChildKind) -> contract.ChildKind:
    if kind in _REFS:
        return kind
    raise _cannot(f"DigitalOcean has no {kind} apart from its machine.")


def _cannot(sentence: str) -> outcomes.Fault:
    return outcomes.Fault(
        sentence, outcome=outcomes.Outcome.NOT_DONE_PERMANENT, topic=outcomes.Topic.INPUT
    )
