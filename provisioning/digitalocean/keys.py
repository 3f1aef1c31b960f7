"""A person's SSH key in a DigitalOcean account.

DigitalOcean takes keys by id alone, and keeps one entry a key whatever its name. So the key is made
before the machine; whose it is stands in its name, since it can carry no tag.

That a key is there tells nothing of its machine, whose lists may lag: an order that came no further
than its key leaves the key to the sweeper, which sees it by its name.

Known limit: the list of keys may be read ten times a minute; past that the look-up says so.
"""

from provisioning import contract, outcomes, packed_owner, shaped
from provisioning.digitalocean import calls, reading
from provisioning.digitalocean import client as client_kit


async def ensure(
    client: client_kit.Client, owner: contract.Owner, *, public_key: str
) -> contract.Child:
    """The account's entry for this key: one that is there stays its owner's, else a new one.

    DigitalOcean keeps one entry a key, whatever its name.
    """
    words = public_key.split()[:2]
    for row in await client.every(calls.KEYS, "/v2/account/keys", "ssh_keys"):
        if str(row.get("public_key", "")).split()[:2] == words:
            with shaped.reading(calls.KEYS.name):
                return reading.ssh_key(row)
    body = await client.send(
        calls.CREATE_KEY,
        "/v2/account/keys",
        body={"name": packed_owner.as_line(owner), "public_key": public_key},
    )
    with shaped.reading(calls.CREATE_KEY.name):
        return reading.ssh_key(body["ssh_key"])


async def of_operation(
    client: client_kit.Client, owner: contract.Owner
) -> tuple[contract.Child, ...]:
    """The keys that this order put there; none where the token may not see keys."""
    try:
        rows = await client.every(calls.KEYS, "/v2/account/keys", "ssh_keys")
    except outcomes.Fault as fault:
        if fault.topic is not outcomes.Topic.RIGHTS:
            raise
        return ()
    with shaped.reading(calls.KEYS.name):
        held = [reading.ssh_key(row) for row in rows]
    return tuple(key for key in held if key.owner is not None and is_same_order(key.owner, owner))


def is_same_order(one: contract.Owner, other: contract.Owner) -> bool:
    """Whether both are of one operation, whatever the attempt: a key serves all of them."""
    return (one.installation, one.operation) == (other.installation, other.operation)
