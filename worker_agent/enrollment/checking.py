"""`worker join --check`: says what a join would do, sends nothing and writes nothing."""

import dataclasses

from runtime_kit import private_files
from wire_protocol import ids
from worker_agent.door import port
from worker_agent.enrollment import plan, preflight
from worker_agent.identity import own, states
from worker_agent.settings import agent_file, failures, paths


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Intention:
    """What a join would do."""

    node_id: ids.NodeId
    platform_url: str
    changes: tuple[str, ...]

    def to_document(self) -> dict[str, object]:
        """The JSON document on stdout."""
        return {
            "check": True,
            "node_id": self.node_id,
            "platform_url": self.platform_url,
            "changes": list(self.changes),
        }

    def to_text(self) -> str:
        """The lines for a person."""
        told = self.changes or ("nothing: this machine has joined already",)
        return "\n".join(
            ["This would happen (nothing was sent or written):", *(f"  {one}" for one in told)]
        )


async def check(decided: plan.Join | plan.AlreadyJoined, *, where: paths.Paths) -> Intention:
    """The changes, after the same checks of this machine; raises as the join would."""
    if isinstance(decided, plan.AlreadyJoined):
        return Intention(
            node_id=decided.agent.node_id, platform_url=decided.join.platform_url, changes=()
        )
    preflight.look_for_room(where)
    found = own.look(where, reader=private_files.read_bounded)  # a join would close lax files
    if found.state is states.State.DAMAGED:
        raise own.damaged(found, where=where)
    changes = []
    if found.state is states.State.FRESH:
        changes.append(f"make a key and a certificate in {where.identity}")
    if decided.connectivity is agent_file.Connectivity.LISTEN:
        await _check_port(decided, found=found)
        changes.append(f"answer one health question on port {decided.port}")
    changes += [
        f"authenticate {decided.url} by {decided.mode}",
        f"enroll as node {decided.node_id} with token {decided.token.enrollment_id}",
        f"write {where.trust}, {where.join} and {where.agent}",
    ]
    return Intention(node_id=decided.node_id, platform_url=decided.url, changes=tuple(changes))


async def _check_port(decided: plan.Join, *, found: own.Found) -> None:
    sockets = port.hold(decided.port)
    if sockets is not None:
        for one in sockets:
            one.close()
    elif found.certificate is None or not await port.is_own_agent(
        decided.port, pin=own.pin_of(found.certificate)
    ):
        raise port_taken(decided.port)


def port_taken(number: int) -> failures.Misuse:
    """The failure for a port that another program holds."""
    return failures.Misuse(
        f"Port {number} is in use by another program on this machine.",
        hint="Nothing was sent. Stop that program, or choose another port with --port.",
    )
