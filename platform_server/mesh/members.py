"""Who takes part, in the store: one key and one address a node, both nobody else's.

A node's row here ends with its right to be a node: a tombstone takes no part whatever stands here,
and an enrollment without a mesh key ends the membership. That a node has the private half of its
key is shown by WireGuard's handshake and by nothing before it.
"""

import dataclasses
import datetime
import ipaddress
import random
from collections.abc import Mapping, Sequence
from typing import Final

from platform_server.mesh import addressing
from platform_server.store import contract
from runtime_kit import clock
from wire_protocol import ids, mesh

PAGE: Final = 1000
_COLUMNS: Final = "m.node_id, m.public_key, m.address, m.handshake_at, m.state, m.updated_at"
_LIVE: Final = "mesh_members AS m JOIN nodes AS n ON n.node_id = m.node_id AND n.state <> 'removed'"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One node's place."""

    node_id: ids.NodeId
    public_key: str
    address: mesh.Address
    handshake_at: datetime.datetime | None
    state: str


async def admit(
    tx: contract.Tx,
    *,
    node_id: ids.NodeId,
    public_key: str,
    network: mesh.Network,
    chance: random.Random,
    now: datetime.datetime,
) -> Member | str:
    """The node's place with this key, the address it had where that is possible.

    A word of `mesh` (`KEY_IN_USE`, `NETWORK_FULL`) where it gets none; it then takes no part.
    """
    await tx.lock(f"mesh-node:{node_id}")
    before = await find(tx, node_id=node_id)
    if before is not None and before.public_key == public_key and before.address in network:
        return before
    await tx.lock(f"mesh-key:{public_key}")
    holder = await tx.fetch_one(
        "SELECT node_id FROM mesh_members WHERE public_key = ? AND node_id <> ?",
        public_key,
        node_id,
    )
    await leave(tx, node_id=node_id)
    if holder is not None:
        return mesh.KEY_IN_USE
    wanted = [] if before is None or before.address not in network else [before.address]
    for address in (*wanted, *addressing.draw(network, chance=chance)):
        if await _take(tx, node_id=node_id, public_key=public_key, address=address, now=now):
            return _fresh(node_id, public_key=public_key, address=address)
    # nearly full, or much drawn at this moment: one at a time looks for what is free
    await tx.lock("mesh-scan")
    for _ in range(addressing.DRAWS):
        rows = await tx.fetch_all(
            "SELECT address FROM mesh_members ORDER BY address LIMIT ?", addressing.MOST_SCANNED
        )
        free = addressing.find_free(network, taken={str(row["address"]) for row in rows})
        if free is None:
            break
        if await _take(tx, node_id=node_id, public_key=public_key, address=free, now=now):
            return _fresh(node_id, public_key=public_key, address=free)
    return mesh.NETWORK_FULL


async def leave(tx: contract.Tx, *, node_id: ids.NodeId) -> bool:
    """Ends the node's part; says whether it had one."""
    return bool(await tx.execute("DELETE FROM mesh_members WHERE node_id = ?", node_id))


async def find(tx: contract.Tx, *, node_id: ids.NodeId) -> Member | None:
    """The node's place."""
    row = await tx.fetch_one(
        f"SELECT {_COLUMNS} FROM mesh_members AS m WHERE m.node_id = ?",  # noqa: S608 - constants
        node_id,
    )
    return None if row is None else _of_row(row)


async def find_live(tx: contract.Tx, *, node_id: ids.NodeId) -> Member | None:
    """The node's place, if it is a node and not a tombstone."""
    row = await tx.fetch_one(
        f"SELECT {_COLUMNS} FROM {_LIVE} WHERE m.node_id = ?",  # noqa: S608 - constants
        node_id,
    )
    return None if row is None else _of_row(row)


async def find_of(
    tx: contract.Tx, *, node_ids: Sequence[ids.NodeId]
) -> Mapping[ids.NodeId, Member]:
    """The places of these nodes (a page at most)."""
    if not node_ids:
        return {}
    rows = await tx.fetch_all(
        f"SELECT {_COLUMNS} FROM {_LIVE} "  # noqa: S608 - constants and marks
        f"WHERE m.node_id IN ({', '.join('?' for _ in node_ids)})",
        *node_ids,
    )
    return {ids.NodeId(row["node_id"]): _of_row(row) for row in rows}


async def list_live(tx: contract.Tx, *, after: str = "") -> Sequence[Member]:
    """The next `PAGE` of those who take part, by node id."""
    rows = await tx.fetch_all(
        f"SELECT {_COLUMNS} FROM {_LIVE} "  # noqa: S608 - constants
        "WHERE m.node_id > ? ORDER BY m.node_id LIMIT ?",
        after,
        PAGE,
    )
    return [_of_row(row) for row in rows]


async def purge(tx: contract.Tx) -> int:
    """Frees the addresses of those who are no nodes any more."""
    return await tx.execute(
        "DELETE FROM mesh_members WHERE NOT EXISTS "
        "(SELECT 1 FROM nodes AS n WHERE n.node_id = mesh_members.node_id "
        "AND n.state <> 'removed')"
    )


async def _take(
    tx: contract.Tx,
    *,
    node_id: ids.NodeId,
    public_key: str,
    address: mesh.Address,
    now: datetime.datetime,
) -> bool:
    """Writes the row if the address is free; the unique columns decide."""
    return bool(
        await tx.execute(
            "INSERT INTO mesh_members (node_id, public_key, address, updated_at) "
            "VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
            node_id,
            public_key,
            str(address),
            clock.to_micros(now),
        )
    )


def _fresh(node_id: ids.NodeId, *, public_key: str, address: mesh.Address) -> Member:
    return Member(
        node_id=node_id,
        public_key=public_key,
        address=address,
        handshake_at=None,
        state="waiting",
    )


def _of_row(row: contract.Row) -> Member:
    shaken = row["handshake_at"]
    return Member(
        node_id=ids.NodeId(row["node_id"]),
        public_key=row["public_key"],
        address=ipaddress.ip_address(row["address"]),
        handshake_at=None if shaken is None else clock.from_micros(shaken),
        state=row["state"],
    )
