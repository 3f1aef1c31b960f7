"""Decides what a join comes to, from the wish and what is stored. Pure: a table tests it.

Three ends: the machine has joined already and nothing is to do; something differs, which is a
`Conflict` that names it; or a plan of what to send where. A new enrollment token on a joined
machine (after a removal and `nodes allow`, or a re-enrollment) is a plan again: what it says anew
of how the machine is reached counts, and all else stays as it is stored.
"""

import dataclasses
import datetime

from wire_protocol import agent_url, enrollment_token, ids, pins, trust
from worker_agent.enrollment import stored as stored_files
from worker_agent.enrollment import ticket_file
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
    presented: ticket_file.Presented | None = None

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
            + "; ".join(differences.told)
            + ".",
            hint=differences.hint,
        )
    agent, join = stored.agent, stored.join
    if stored.is_whole and agent is not None and join is not None:  # noqa: SIM102 - two questions
        if wish.token is None or wish.token.enrollment_id == join.enrollment_id:
            return AlreadyJoined(agent=agent, join=join)
    return _enrollment(wish, stored=stored)


def _enrollment(wish: wishes.Wish, *, stored: stored_files.Stored) -> Join:
    """A first join, or one again: then what is stored and can be read stays as it is."""
    # An unfinished join leaves join.json at most and binds nobody: its token may not be spent yet.
    agent, join = stored.agent, stored.join if stored.has_joined else None
    known_id = agent.node_id if agent else join.node_id if join else None
    url, node_id = wish.url or (join.platform_url if join else None), wish.node_id or known_id
    if wish.token is None and stored.has_joined:
        raise failures.NeedsOperator(
            "A file of this machine's join is damaged, and only a token can repair it.",
            hint="Ask for a new join token: enlist nodes enroll-token "
            f"{node_id or 'NODE_ID'} --replace",
        )
    if url is None or node_id is None or wish.token is None:
        missing = [
            flag
            for flag, value in (
                ("--platform-url", url),
                ("--node-id", node_id),
                ("--enrollment-token-file", wish.token),
            )
            if value is None
        ]
        raise failures.Misuse(
            f"Without a join token {' and '.join(missing)} must be given.",
            hint="A join token comes from: enlist nodes enroll-token NODE_ID",
        )
    addresses = wish.addresses or (agent.addresses if agent else ())
    if wish.port is not None and not addresses:
        raise failures.Misuse(
            "--port belongs to --address, the address at which the Platform reaches this machine."
        )
    kept_port = agent.port if agent else agent_url.DEFAULT_PORT
    kept_labels = agent.reported_labels if agent else {}
    mode = join_file.mode_of(has_pins=bool(wish.pins), has_ca=wish.ca_pem is not None)
    return Join(
        url=url,
        node_id=node_id,
        token=wish.token,
        mode=join.mode if join else mode,
        pins=wish.pins if join is None or (join.pins and wish.pins) else join.pins,
        ca_pem=join.ca_pem if join else wish.ca_pem,
        trust_key_ids=wish.trust_key_ids,
        expires_at=wish.expires_at,
        connectivity=(
            agent_file.Connectivity.LISTEN if addresses else agent_file.Connectivity.DIAL_OUT
        ),
        addresses=addresses,
        port=wish.port or kept_port,
        labels=kept_labels if wish.labels is None else wish.labels,
        held=stored.held if stored.has_joined else None,
        presented=wish.presented,
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Differences:
    """Every way in which the wish is not what is stored, in words, and what to do about it."""

    told: tuple[str, ...]
    hint: str

    def __bool__(self) -> bool:
        return bool(self.told)


def _differences(wish: wishes.Wish, *, stored: stored_files.Stored) -> _Differences:
    if not stored.has_joined:
        return _Differences(told=(), hint="")
    agent, join = stored.agent, stored.join
    others: list[str] = []
    node_id = agent.node_id if agent else join.node_id if join else None
    if node_id is not None and wish.node_id not in (None, node_id):
        others.append(f"it is node {node_id}, not {wish.node_id}")
    if join is not None:
        others += _platform_differences(wish, join=join, held=stored.held)
    agents = [] if agent is None else _agent_differences(wish, agent=agent, join=join)
    other_pins = [] if join is None else _pin_differences(wish, join=join, held=stored.held)
    if others or (agents and other_pins):
        hint = "To give up the old join, move its data directory away."
    elif agents:
        hint = (
            "With a token of its own the same machine may say them anew: take one on the Platform "
            f"(enlist nodes enroll-token {node_id} --replace), and give it here with these flags: "
            "enlist worker join -"
        )
    else:
        hint = (
            "If the Platform has a new TLS key, its trust set says so; fetch that first, then run "
            "this again: enlist worker refresh-trust"
        )
    told = (*others, *agents, *other_pins)
    return _Differences(told=told, hint=f"Nothing was changed. {hint}")


def _agent_differences(
    wish: wishes.Wish, *, agent: agent_file.AgentFile, join: join_file.JoinFile | None
) -> list[str]:
    """What a new enrollment alone may change, so that with its token nothing of it is in the way.

    Without join.json nobody knows which enrollment the machine had.
    """
    known = None if join is None else join.enrollment_id
    if wish.token is not None and wish.token.enrollment_id != known:
        return []
    found: list[str] = []
    if wish.addresses and wish.addresses != agent.addresses:
        kept = ", ".join(agent.addresses) or "none, the machine dials out"
        found.append(f"--address is {', '.join(wish.addresses)}, stored is {kept}")
    if wish.port not in (None, agent.port):
        found.append(f"--port is {wish.port}, stored is {agent.port}")
    if wish.labels is not None and wish.labels != agent.reported_labels:
        found.append("--label differs from the stored labels")
    return found


def _platform_differences(
    wish: wishes.Wish, *, join: join_file.JoinFile, held: trust.Held | None
) -> list[str]:
    """Nothing but a held statement vouches for another address; a trust key's id is public."""
    found: list[str] = []
    urls = {join.platform_url}
    if held is not None and join.mode.adopts_statements and held.statement.enrollment_url:
        urls.add(held.statement.enrollment_url)
    if wish.url is not None and wish.url not in urls:
        found.append(f"its Platform is {join.platform_url}, not {wish.url}")
    if wish.ca_pem is not None and wish.ca_pem != join.ca_pem:
        found.append("--platform-ca-file holds other certificates than the stored one")
    return found


def _pin_differences(
    wish: wishes.Wish, *, join: join_file.JoinFile, held: trust.Held | None
) -> list[str]:
    known = {*join.pins, *join.given_pins}
    if held is not None:
        known.update(held.statement.enrollment_pins)  # to compare with; used in pin mode alone
    if not wish.pins or not known.isdisjoint(wish.pins):
        return []
    stored_pins = ", ".join(join.pins) or f"none, the mode is {join.mode}"
    given = "--platform-fingerprint is" if wish.pins_are_flags else "the join token's pin is"
    return [f"{given} {', '.join(wish.pins)}, stored is {stored_pins}"]
