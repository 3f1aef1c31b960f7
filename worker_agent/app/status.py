"""What `enlist worker status` says: whether this machine has joined, and as whom. Reads only."""

import dataclasses
import datetime

from wire_protocol import times, trust
from worker_agent.identity import lock, own, states
from worker_agent.session import told
from worker_agent.settings import agent_file, documents, join_file, paths, starting, trust_file


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One machine's own view of itself; no secret is in it."""

    where: paths.Paths
    now: datetime.datetime
    state: states.State
    faults: tuple[str, ...]
    agent: agent_file.AgentFile | None
    join: join_file.JoinFile | None
    held: trust.Held | None
    pin: str | None
    certificate_ends: datetime.datetime | None
    agent_runs: bool
    session: told.Told | None

    def to_document(self) -> dict[str, object]:
        """The JSON document on stdout."""
        agent, join = self.agent, self.join
        return {
            "state": self.state.value,
            "node_id": agent.node_id if agent else None,
            "agent_id": agent.agent_id if agent else None,
            "connectivity": agent.connectivity.value if agent else None,
            "address": agent.origin if agent else None,
            "generation": agent.generation if agent else None,
            "reported_labels": agent.reported_labels if agent else None,
            "joined_at": times.to_rfc3339(agent.joined_at) if agent else None,
            "agent_runs": self.agent_runs,
            "pin": self.pin,
            "certificate_not_after": (
                times.to_rfc3339(self.certificate_ends) if self.certificate_ends else None
            ),
            "session": self._session(),
            "platform_url": join.platform_url if join else None,
            "platform_id": join.platform_id if join else None,
            "authenticated_by": join.mode.value if join else None,
            "pins": list(join.pins) if join else None,
            "trust": self._trust(),
            "data_dir": str(self.where.folder),
            "faults": list(self.faults),
        }

    def to_text(self) -> str:
        """The lines for a person."""
        shown = {
            name.replace("_", " "): value
            for name, value in self.to_document().items()
            if name not in ("trust", "faults", "reported_labels", "session")
            and value not in (None, [])
        }
        shown |= {
            ("session" if name == "state" else f"session {name.replace('_', ' ')}"): value
            for name, value in (self._session() or {}).items()
            if value is not None and name != "session_id"
        }
        width = max(len(name) for name in shown)
        lines = [f"{name:<{width}}  {_text(value)}" for name, value in shown.items()]
        if self.held is not None:
            lines.append("trust keys")
            lines += [
                f"  {key.key_id}  {key.not_before:%Y-%m-%d} to {key.not_after:%Y-%m-%d}"
                f"{'' if key.is_valid_at(self.now) else '  (not valid now)'}"
                for key in self.held.statement.trust_keys
            ]
        lines += [f"fault: {fault}" for fault in self.faults]
        if self.state is states.State.FRESH:
            lines.append(f"Not joined. Run: enlist worker join - --data-dir {self.where.folder}")
        elif self.state is states.State.JOINED and not self.agent_runs:
            lines.append(f"The Agent does not run. Run: {starting.command(self.where)}")
        return "\n".join(lines)

    def _session(self) -> dict[str, object] | None:
        """How the session stands; what a former Agent told last, where it tells why it ended."""
        said = self.session
        if said is None or not (self.agent_runs or said.state == "stopped"):
            return None
        return {
            "state": said.state,
            "gateway": said.gateway,
            "session_id": said.session_id,
            "since": said.since,
            "last_heartbeat_at": said.last_heartbeat_at,
            "reason": said.reason,
            "class": said.kind,
            "next_try_at": said.next_try_at,
        }

    def _trust(self) -> dict[str, object] | None:
        if self.held is None:
            return None
        statement = self.held.statement
        return {
            "epoch": statement.epoch,
            "serial": statement.serial,
            "issued_at": times.to_rfc3339(statement.issued_at),
            "keys": [
                {
                    "key_id": key.key_id,
                    "not_before": times.to_rfc3339(key.not_before),
                    "not_after": times.to_rfc3339(key.not_after),
                    "valid_now": key.is_valid_at(self.now),
                }
                for key in statement.trust_keys
            ],
        }


def read(where: paths.Paths, *, now: datetime.datetime) -> Report:
    """Looks at the data directory without changing anything; damage is told, not raised."""
    faults: list[str] = []
    found = own.look(where)
    if found.fault is not None:
        faults.append(found.fault)
    agent = join = held = None
    try:
        agent = agent_file.read(where.agent)
    except documents.Damaged as error:
        faults.append(str(error))
    try:
        join = join_file.read(where.join)
    except documents.Damaged as error:
        faults.append(str(error))
    try:
        held = trust_file.read(where.trust)
    except documents.Damaged as error:
        faults.append(str(error))
    state: states.State = found.state
    if state is states.State.CERTIFIED and agent is not None and join is not None and held:
        state = states.step(state, states.Event.ANSWER_SAVED)
    return Report(
        where=where,
        now=now,
        state=state,
        faults=tuple(faults),
        agent=agent,
        join=join,
        held=held,
        pin=own.pin_of(found.certificate) if found.certificate is not None else None,
        certificate_ends=(
            found.certificate.not_valid_after_utc if found.certificate is not None else None
        ),
        agent_runs=lock.is_held(where.agent_lock),
        session=told.read(where.session),
    )


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
