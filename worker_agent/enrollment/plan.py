"""Decides what a join comes to, from the wish and what is stored. Pure: a table tests it.

Three ends: the machine has joined already and nothing is to do; something differs, which is a
`Conflict` that names it; or a plan of what to send where. A new enrollment token on a joined
machine (after a removal and `nodes allow`, or a re-enrollment) is a plan again, with the stored
values kept.
"""

import dataclasses
import datetime

from wire_protocol import agent_url, enrollment_token, ids, pins, trust
from worker_agent.enrollment import stored as stored_files
from worker_agent.enrollment import wish as wishes
from worker_agent.settings import agent_file, failures, join_file


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """An enrollment to be done."""

    url: str
    node_id: ids.NodeId
    token: enrollment_token.EnrollmentToken
    mode: join_file.Mode
    pins: tuple[pins.Pin, ...]
    ca_pem: str | None
    trust_key_ids: tuple[ids.KeyId, ...]
    expires_at: datetime.datetime | None
    connectivity: agent_file.Connectivity
    addresses: tuple[str, ...]
    port: int
    labels: dict[str, str]
    held: trust.Held | None

    @property
    def agent_origin(self) -> str | None:
        """The address under which the Platform dials this machine, in listen mode."""
        if self.connectivity is agent_file.Connectivity.DIAL_OUT:
            return None
        return str(agent_url.AgentUrl(host=self.addresses[0], port=self.port))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AlreadyJoined:
    """The machine is this node of this Platform; nothing is sent."""

    agent: agent_file.AgentFile
    join: join_file.JoinFile


def decide(wish: wishes.Wish, *, stored: stored_files.Stored) -> Join | AlreadyJoined:
    """What to do.

    Raises `Conflict` where the wish differs from what is stored, and `Misuse` where something is
    missing for a first join.
    """
    differences = _differences(wish, stored=stored)
    if differences:
        raise failures.Conflict(
            "This machine has joined already, and a machine joins one Platform as one node: "
            + "; ".join(differences)
            + ".",
            hint="Nothing was changed. To give up the old join, move its data directory away.",
        )
    agent, join = stored.agent, stored.join
    if agent is None or join is None:
        return _first(wish, stored=stored)
    if stored.is_whole and (wish.token is None or wish.token.enrollment_id == join.enrollment_id):
        return AlreadyJoined(agent=agent, join=join)
    return _again(wish, agent=agent, join=join, stored=stored)


def _first(wish: wishes.Wish, *, stored: stored_files.Stored) -> Join:
    if wish.url is None or wish.node_id is None or wish.token is None:
        missing = [
            flag
            for flag, value in (
                ("--platform-url", wish.url),
                ("--node-id", wish.node_id),
                ("--enrollment-token-file", wish.token),
            )
            if value is None
        ]
        raise failures.Misuse(
            f"Without a join token {' and '.join(missing)} must be given.",
            hint="A join token comes from: enlist nodes enroll-token NODE_ID",
        )
    if wish.port is not None and not wish.addresses:
        raise failures.Misuse(
            "--port belongs to --address, the address at which the Platform reaches this machine."
        )
    listens = bool(wish.addresses)
    return Join(
        url=wish.url,
        node_id=wish.node_id,
        token=wish.token,
        mode=join_file.mode_of(has_pins=bool(wish.pins), has_ca=wish.ca_pem is not None),
        pins=wish.pins,
        ca_pem=wish.ca_pem,
        trust_key_ids=wish.trust_key_ids,
        expires_at=wish.expires_at,
        connectivity=(
            agent_file.Connectivity.LISTEN if listens else agent_file.Connectivity.DIAL_OUT
        ),
        addresses=wish.addresses,
        port=wish.port or agent_url.DEFAULT_PORT,
        labels=wish.labels or {},
        held=None if stored.agent is None else stored.held,  # an unfinished join binds nobody
    )


def _again(
    wish: wishes.Wish,
    *,
    agent: agent_file.AgentFile,
    join: join_file.JoinFile,
    stored: stored_files.Stored,
) -> Join:
    if wish.token is None:
        raise failures.NeedsOperator(
            "A file of this machine's join is damaged, and only a token can repair it.",
            hint=f"Ask for a new join token: enlist nodes enroll-token {agent.node_id} --replace",
        )
    return Join(
        url=wish.url or join.platform_url,
        node_id=agent.node_id,
        token=wish.token,
        mode=join.mode,
        pins=wish.pins or join.pins,
        ca_pem=join.ca_pem,
        trust_key_ids=wish.trust_key_ids,
        expires_at=wish.expires_at,
        connectivity=agent.connectivity,
        addresses=agent.addresses,
        port=agent.port,
        labels=agent.reported_labels,
        held=stored.held,
    )


def _differences(wish: wishes.Wish, *, stored: stored_files.Stored) -> list[str]:
    """Every way in which the wish is not what is stored, in words."""
    found: list[str] = []
    agent, join = stored.agent, stored.join
    if agent is not None:
        if wish.node_id not in (None, agent.node_id):
            found.append(f"it is node {agent.node_id}, not {wish.node_id}")
        if wish.addresses and wish.addresses != agent.addresses:
            kept = ", ".join(agent.addresses) or "none, the machine dials out"
            found.append(f"--address is {', '.join(wish.addresses)}, stored is {kept}")
        if wish.port not in (None, agent.port):
            found.append(f"--port is {wish.port}, stored is {agent.port}")
        if wish.labels is not None and wish.labels != agent.reported_labels:
            found.append("--label differs from the stored labels")
    # An unfinished join leaves join.json at most, and binds nobody: the token is not yet used up.
    if agent is not None and join is not None:
        found.extend(_platform_differences(wish, join=join, held=stored.held))
    return found


def _platform_differences(
    wish: wishes.Wish, *, join: join_file.JoinFile, held: trust.Held | None
) -> list[str]:
    found: list[str] = []
    urls, known = {join.platform_url}, {*join.pins, *join.given_pins}
    vouched = False  # whether the join token names a trust key that this machine holds
    if held is not None:
        vouched = any(key.key_id in wish.trust_key_ids for key in held.statement.trust_keys)
        if join.mode.adopts_statements:
            known.update(held.statement.enrollment_pins)
            if held.statement.enrollment_url is not None:
                urls.add(held.statement.enrollment_url)
    if wish.url is not None and wish.url not in urls and not vouched:
        found.append(f"its Platform is {join.platform_url}, not {wish.url}")
    if wish.pins and known.isdisjoint(wish.pins) and (wish.pins_are_flags or not vouched):
        stored_pins = ", ".join(join.pins) or f"none, the mode is {join.mode}"
        found.append(f"--platform-fingerprint is {', '.join(wish.pins)}, stored is {stored_pins}")
    if wish.ca_pem is not None and wish.ca_pem != join.ca_pem:
        found.append("--platform-ca-file holds other certificates than the stored one")
    return found
