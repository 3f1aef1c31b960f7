"""A droplet into which nobody can log: a key that nobody holds, and a firewall without a way in.

DigitalOcean mails a root password for a droplet without a key, and lets everything in by default.
The firewall holds by the tag of the order, so it is there before the droplet is. It can carry no
tags of its own, so its owner stands in its name.

Known limit: a token without `firewall:create` makes none; then port 22 is open, to nobody's key.
"""

from collections.abc import Mapping
from typing import Any, Final

from provisioning import contract, naming, nobody, outcomes, packed_owner, shaped
from provisioning.digitalocean import calls, keys, reading
from provisioning.digitalocean import client as client_kit

_EVERYWHERE: Final = {"addresses": ["0.0.0.0/0", "::/0"]}
_OUT: Final = tuple(
    {"protocol": protocol, "ports": "0", "destinations": _EVERYWHERE}  # "0" is every port
    for protocol in ("tcp", "udp", "icmp")
)


async def make_key(client: client_kit.Client, owner: contract.Owner) -> contract.Child:
    """A fresh key each time, so no list has to be read first: those may be read seldom."""
    body = await client.send(
        calls.CREATE_KEY,
        "/v2/account/keys",
        body={"name": packed_owner.as_line(owner), "public_key": nobody.public_key()},
    )
    with shaped.reading(calls.CREATE_KEY.name):
        return reading.ssh_key(body["ssh_key"])


async def make_firewall(client: client_kit.Client, owner: contract.Owner) -> contract.Child | None:
    """The order's own; None where the token may make none."""
    tag = packed_owner.tag(naming.OPERATION, owner.operation)
    body = {
        "name": packed_owner.as_dotted(owner),
        "inbound_rules": [],
        "outbound_rules": list(_OUT),
        "tags": [tag],
    }
    try:
        await client.send(calls.CREATE_TAG, "/v2/tags", body={"name": tag})
        told = await client.send(calls.CREATE_FIREWALL, "/v2/firewalls", body=body)
    except outcomes.Fault as fault:
        if fault.topic is outcomes.Topic.RIGHTS:
            return None
        if fault.code != "conflict":
            raise
        there = [one for one in await of_firewalls(client, owner) if one.name == body["name"]]
        if not there:
            raise
        return there[0]
    with shaped.reading(calls.CREATE_FIREWALL.name):
        return reading.firewall(told["firewall"])


async def firewalls(client: client_kit.Client) -> list[Mapping[str, Any]]:
    """All of the account; none where the token may not see them, and so has made none."""
    try:
        return list(await client.every(calls.FIREWALLS, "/v2/firewalls", "firewalls"))
    except outcomes.Fault as fault:
        if fault.topic is not outcomes.Topic.RIGHTS:
            raise
        return []


async def of_operation(
    client: client_kit.Client, owner: contract.Owner
) -> tuple[contract.Child, ...]:
    """Keys and firewalls that this order put there."""
    return (*await keys.of_operation(client, owner), *await of_firewalls(client, owner))


async def of_firewalls(
    client: client_kit.Client, owner: contract.Owner
) -> tuple[contract.Child, ...]:
    """The firewalls of this order."""
    rows = await firewalls(client)
    with shaped.reading(calls.FIREWALLS.name):
        found = [reading.firewall(row) for row in rows]
    return tuple(
        one for one in found if one.owner is not None and keys.is_same_order(one.owner, owner)
    )
