"""How a join ended, for people and as JSON. No secret is in it."""

import dataclasses

from wire_protocol import ids, trust
from worker_agent.enrollment import plan
from worker_agent.settings import agent_file, join_file, paths, starting

_UNIT = starting.UNIT.name


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One finished join."""

    already_joined: bool
    agent: agent_file.AgentFile
    join: join_file.JoinFile
    where: paths.Paths
    trust_key_ids: tuple[ids.KeyId, ...]
    reachable: bool | None
    reachable_reason: str | None

    @property
    def start_command(self) -> str:
        """The one command that starts the Agent."""
        return starting.command(self.where)

    def written(self) -> tuple[str, ...]:
        """The files that make this machine a node."""
        return tuple(str(path) for path in self.where.private_files())

    def to_document(self) -> dict[str, object]:
        """The JSON document on stdout."""
        return {
            "node_id": self.agent.node_id,
            "agent_id": self.agent.agent_id,
            "already_joined": self.already_joined,
            "connectivity": self.agent.connectivity.value,
            "address": self.address,
            "generation": self.agent.generation,
            "platform_url": self.join.platform_url,
            "platform_id": self.join.platform_id,
            "authenticated_by": self.join.mode.value,
            "pins": list(self.join.pins),
            "trust_keys": list(self.trust_key_ids),
            "reachable": self.reachable,
            "reachable_reason": self.reachable_reason,
            "data_dir": str(self.where.folder),
            "written": list(self.written()),
            "command": self.start_command,
        }

    @property
    def address(self) -> str | None:
        """Where the Platform dials this machine, in listen mode."""
        return self.agent.origin

    def to_text(self) -> str:
        """The lines for a person."""
        done = "had joined already" if self.already_joined else "has joined"
        lines = [
            f"This machine {done} {self.join.platform_url} as node {self.agent.node_id}.",
            f"Its files are in {self.where.folder}:",
            *(f"  {path}" for path in self.written()),
        ]
        if starting.is_a_unit(self.where):
            return "\n".join([*lines, f"systemd starts its Agent: systemctl status {_UNIT}"])
        return "\n".join([*lines, "Start its Agent with:", f"  {self.start_command}"])


def of_earlier(
    already: plan.AlreadyJoined, *, held: trust.Held | None, where: paths.Paths
) -> Outcome:
    """The outcome on a machine that had joined already: what is stored."""
    keys = () if held is None else tuple(key.key_id for key in held.statement.trust_keys)
    return Outcome(
        already_joined=True,
        agent=already.agent,
        join=already.join,
        where=where,
        trust_key_ids=keys,
        reachable=None,
        reachable_reason=None,
    )


def warnings_of(done: Outcome) -> tuple[str, ...]:
    """What a person should know though the join succeeded."""
    told = []
    if done.agent.connectivity is agent_file.Connectivity.DIAL_OUT and not done.agent.gateway_url:
        told.append(
            "Without --address this machine dials out, and its Platform has no gateway to dial: "
            f"node {done.agent.node_id} stays `enrolled` until there is one. Open it on the "
            "Platform (enlist serve --gateway-port); the machine then finds it by itself."
        )
    if done.reachable is False:
        reason = f" ({done.reachable_reason})" if done.reachable_reason else ""
        told.append(
            f"This machine is not reachable from the Platform at {done.address}{reason}. Open the "
            "port in the firewall; the node becomes `ready` once the Platform gets through."
        )
    return tuple(told)
