"""Giving a node its place: in the transaction of its enrollment, or over its proved session.

An enrollment ends whatever key the node had before, so one without a mesh key ends its part. A
repeated enrollment proves no more than the first did: it changes the mesh key only before the node
was first ready. Later the node changes it over its session, which proves its key each time.
"""

import datetime
import random

from platform_server.audit import actions, events
from platform_server.mesh import founding, members
from platform_server.nodes import register
from platform_server.store import contract
from wire_protocol import ids, mesh

ANOTHER_KEY_KEPT = "another-key-kept"  # ask over the session


class Places:
    """Gives places; `mesh` None where this Platform has no mesh: then everybody gets none."""

    def __init__(self, found: founding.Mesh | None, *, chance: random.Random) -> None:
        self._mesh = found
        self._chance = chance

    @property
    def is_open(self) -> bool:
        """Whether this Platform has a mesh."""
        return self._mesh is not None

    async def at_enrollment(
        self,
        tx: contract.Tx,
        *,
        registered: register.Registered,
        public_key: str | None,
        now: datetime.datetime,
    ) -> mesh.Answer | None:
        """The place of a node that has just been registered; None where there is no mesh."""
        if self._mesh is None:
            return None
        node_id = registered.node_id
        if public_key is None:
            if registered.first_time:
                await members.leave(tx, node_id=node_id)
            return mesh.Answer()
        if not registered.first_time and not await _may_change(
            tx, node_id=node_id, public_key=public_key
        ):
            return mesh.Answer(refused=ANOTHER_KEY_KEPT)
        return await self._admit(tx, node_id=node_id, public_key=public_key, now=now)

    async def find_standing(
        self, tx: contract.Tx, *, node_id: ids.NodeId, public_key: str
    ) -> mesh.Answer | None:
        """The place that this very key has; None where something would have to be written."""
        if self._mesh is None:
            return mesh.Answer()
        place = await members.find_live(tx, node_id=node_id)
        if place is None or place.public_key != public_key:
            return None
        if place.address not in self._mesh.network:
            return None
        return mesh.Answer(grant=self._mesh.grant(place.address))

    async def over_session(
        self,
        tx: contract.Tx,
        *,
        node_id: ids.NodeId,
        public_key: str,
        environment: str,
        now: datetime.datetime,
    ) -> mesh.Answer:
        """The place of a node that has proved its key on this connection; may be repeated."""
        if self._mesh is None:
            return mesh.Answer()
        node = await tx.fetch_one(
            "SELECT infra FROM nodes WHERE node_id = ? AND state <> 'removed'", node_id
        )
        if node is None:
            return mesh.Answer()
        infra = node["infra"]
        before = await members.find(tx, node_id=node_id)
        answer = await self._admit(tx, node_id=node_id, public_key=public_key, now=now)
        if answer.grant is None:
            return answer
        address = str(answer.grant.address)
        if before is not None and (before.public_key, str(before.address)) == (public_key, address):
            return answer
        told = {"mesh_public_key": public_key, "mesh_address": address}
        await actions.append(
            tx,
            action=actions.Action(
                at=now,
                actor=f"node:{node_id}",
                action="node.mesh-changed",
                target=node_id,
                infra=infra,
                environment=environment,
                details=told,
            ),
        )
        await events.append(
            tx, at=now, kind="node.mesh-changed", subject=node_id, infra=infra, data=told
        )
        return answer

    async def _admit(
        self, tx: contract.Tx, *, node_id: ids.NodeId, public_key: str, now: datetime.datetime
    ) -> mesh.Answer:
        if self._mesh is None:
            return mesh.Answer()
        place = await members.admit(
            tx,
            node_id=node_id,
            public_key=public_key,
            network=self._mesh.network,
            chance=self._chance,
            now=now,
        )
        if isinstance(place, str):
            return mesh.Answer(refused=place)
        return mesh.Answer(grant=self._mesh.grant(place.address))


async def _may_change(tx: contract.Tx, *, node_id: ids.NodeId, public_key: str) -> bool:
    """Whether a repeat may bring this key: it is the same, the first, or was never ready."""
    row = await tx.fetch_one(
        "SELECT m.public_key, n.first_ready_at FROM nodes AS n "
        "LEFT JOIN mesh_members AS m ON m.node_id = n.node_id WHERE n.node_id = ?",
        node_id,
    )
    if row is None:
        return False
    return row["first_ready_at"] is None or row["public_key"] in (None, public_key)
