"""Storages, backups and floating addresses at UpCloud, as volumes, snapshots and stable addresses.

Creating looks first for what an earlier try of the same order may have made, by its title, which
names the owner. Data outlives machines: nothing here is deleted but by name.

Known limit: a floating address carries neither title nor label, so one whose creating was not
answered can be told from others only by a person, in the list of addresses without a machine.
"""

import re
from typing import Any, Final

from provisioning import contract, outcomes, shaped
from provisioning.upcloud import calls, reading
from provisioning.upcloud import client as client_kit

_KIND = contract.ChildKind
_STORED: Final = frozenset({_KIND.DISK, _KIND.VOLUME, _KIND.SNAPSHOT})
_NAME: Final = "UpCloud"
_ID: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{0,63}")
_ADDRESS: Final = re.compile(r"[0-9A-Fa-f][0-9A-Fa-f.:]{1,44}")


async def storages(client: client_kit.Client) -> list[contract.Child]:
    """All private storages: disks, volumes, backups."""
    rows = await client.every(calls.STORAGES, "/1.3/storage/private", ("storages", "storage"))
    with shaped.reading(calls.STORAGES.name):
        return [reading.storage(row) for row in rows]


async def addresses(client: client_kit.Client) -> list[contract.Child]:
    """All floating addresses."""
    rows = await client.every(calls.ADDRESSES, "/1.3/ip_address", ("ip_addresses", "ip_address"))
    with shaped.reading(calls.ADDRESSES.name):
        return [reading.address(row) for row in rows if row.get("floating") == "yes"]


async def describe(client: client_kit.Client, child: contract.Child) -> contract.Child | None:
    """The child as it is now; None where it is gone."""
    _require(child)
    if child.kind in _STORED:
        row = await client.find(calls.STORAGE, f"/1.3/storage/{child.ref}", "storage")
        return None if row is None else reading.storage(row)
    row = await client.find(calls.ADDRESS, f"/1.3/ip_address/{child.ref}", "ip_address")
    return None if row is None else reading.address(row)


async def delete(client: client_kit.Client, child: contract.Child) -> None:
    """Has it deleted; gone already is done. Attached yet: a fault with topic `STATE`."""
    _require(child)
    gone, call, path = (
        ("IP_ADDRESS_NOT_FOUND", calls.DELETE_ADDRESS, f"/1.3/ip_address/{child.ref}")
        if child.kind is _KIND.ADDRESS
        else ("STORAGE_NOT_FOUND", calls.DELETE_STORAGE, f"/1.3/storage/{child.ref}")
    )
    try:
        await client.send(call, path)
    except outcomes.Fault as fault:
        if fault.code != gone:
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
    """A volume, a backup of `of`, or a floating address; what is there already is given back."""
    if kind is _KIND.ADDRESS:
        order = {"family": "IPv4", "zone": region, "floating": "yes", "access": "public"}
        body = await client.send(
            calls.CREATE_ADDRESS, "/1.3/ip_address", body={"ip_address": order}
        )
        return reading.address(client_kit.within(calls.CREATE_ADDRESS, body, "ip_address"))
    if kind not in {_KIND.VOLUME, _KIND.SNAPSHOT}:
        raise _cannot(f"UpCloud cannot make a {kind} this way.")
    if of is not None:
        outcomes.require_ref(_ID, of, provider=_NAME, what="machine or volume")
    title = reading.titled(name, owner)
    for there in await storages(client):
        if there.kind is kind and there.owner == owner and there.name == name:
            return there
    if kind is _KIND.VOLUME:
        storage: dict[str, Any] = {
            "title": title,
            "zone": region,
            "size": size_gigabytes or 10,
            "tier": "maxiops",
        }
        body = await client.send(calls.CREATE_STORAGE, "/1.3/storage", body={"storage": storage})
        return reading.storage(client_kit.within(calls.CREATE_STORAGE, body, "storage"))
    source = await _disk_of(client, of)
    body = await client.send(
        calls.BACKUP, f"/1.3/storage/{source}/backup", body={"storage": {"title": title}}
    )
    return reading.storage(client_kit.within(calls.BACKUP, body, "storage"))


async def attach(client: client_kit.Client, child: contract.Child, *, to: str) -> None:
    """Gives the volume or address to the server; it has it already: done."""
    outcomes.require_ref(_ID, to, provider=_NAME)
    now = await describe(client, child)
    if now is not None and now.attached_to == to:
        return
    if child.kind is not _KIND.ADDRESS:
        device = {"type": "disk", "address": "virtio", "storage": child.ref}
        await client.send(
            calls.ATTACH, f"/1.3/server/{to}/storage/attach", body={"storage_device": device}
        )
        return
    server = await client.find(calls.GET, f"/1.3/server/{to}", "server")
    mac = None if server is None else _public_mac(server)
    if mac is None:
        raise _cannot(f"The server {to} has no public interface that could take an address.")
    await _move(client, child, mac=mac)


async def detach(client: client_kit.Client, child: contract.Child) -> None:
    """Takes it from whatever has it; nothing has it: done."""
    now = await describe(client, child)
    if now is None or now.attached_to is None:
        return
    if child.kind is _KIND.ADDRESS:
        await _move(client, child, mac=None)
        return
    server = await client.find(calls.GET, f"/1.3/server/{now.attached_to}", "server")
    for device in reading.devices(server or {}):
        if device.get("storage") == child.ref:
            await client.send(
                calls.DETACH,
                f"/1.3/server/{now.attached_to}/storage/detach",
                body={"storage_device": {"address": device["address"]}},
            )


async def _move(client: client_kit.Client, child: contract.Child, *, mac: str | None) -> None:
    await client.send(
        calls.MOVE_ADDRESS, f"/1.3/ip_address/{child.ref}", body={"ip_address": {"mac": mac}}
    )


async def _disk_of(client: client_kit.Client, ref: str | None) -> str:
    """The storage to take a backup of: this one, or that which this server boots from."""
    if ref is None:
        raise _cannot("A snapshot is taken of a machine or a volume; name one.")
    server = await client.find(calls.GET, f"/1.3/server/{ref}", "server")
    devices = [] if server is None else reading.devices(server)
    own = [one for one in devices if reading.is_disk(str(one.get("storage_title", "")))]
    return str((own or devices)[0]["storage"]) if devices else ref


def _public_mac(server: dict[str, Any]) -> str | None:
    interfaces = ((server.get("networking") or {}).get("interfaces") or {}).get("interface") or []
    for interface in interfaces:
        families = {
            one.get("family") for one in (interface.get("ip_addresses") or {})["ip_address"]
        }
        if interface.get("type") == "public" and "IPv4" in families:
            return str(interface["mac"])
    return None


def _require(child: contract.Child) -> None:
    if child.kind not in _STORED and child.kind is not _KIND.ADDRESS:
        raise _cannot(f"UpCloud has no {child.kind} apart from its machine.")
    pattern = _ID if child.kind in _STORED else _ADDRESS
    outcomes.require_ref(pattern, child.ref, provider=_NAME, what=child.kind)


def _cannot(sentence: str) -> outcomes.Fault:
    return outcomes.Fault(
        sentence, outcome=outcomes.Outcome.NOT_DONE_PERMANENT, topic=outcomes.Topic.INPUT
    )
