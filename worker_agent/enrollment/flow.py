"""Does a join: every step in order, each of which may be the last before a `kill -9`.

room → key and certificate → port → Platform authenticated → token sent → answer judged → files.
All that can fail on this machine fails before the token leaves it. `agent.json` is written last;
until it stands the machine has not joined, and the same command with the same token finishes: the
key is kept, and the Platform gives the same key the same answer.
"""

import contextlib
from collections.abc import AsyncIterator, Callable

from runtime_kit import crash_points, secret
from runtime_kit.wireguard import keys
from wire_protocol import mesh, pins
from worker_agent.door import platform, port
from worker_agent.enrollment import (
    answers,
    checking,
    outcome,
    plan,
    preflight,
    provisional,
    question,
    surroundings,
)
from worker_agent.identity import lock, own, states
from worker_agent.mesh import grant_file, key
from worker_agent.settings import agent_file, failures, join_file, modes, paths, trust_file

ROOM_CHECKED = crash_points.declare(
    "join.room-checked", story="Disk space and writability have been checked."
)
PORT_HELD = crash_points.declare(
    "join.port-held", story="The Agent's port is held and answers the health question."
)
TRUST_SAVED = crash_points.declare("join.trust-saved", story="The first trust set is on the disk.")
JOIN_SAVED = crash_points.declare(
    "join.join-saved", story="How the Platform was authenticated is on the disk."
)
AGENT_SAVED = crash_points.declare("join.agent-saved", story="The machine has joined.")


async def join(
    planned: plan.Join, *, where: paths.Paths, around: surroundings.Surroundings
) -> outcome.Outcome:
    """Enrolls this machine as planned; may be repeated after any failure or crash.

    Raises a `Failure`: `Misuse` before anything was sent, others as the Platform's answer says.
    """
    preflight.check_room(where)
    busy = f"Another enlist command is at work in {where.folder}. Let it end, then run this again."
    with lock.held(where.lock, busy=busy):
        crash_points.reach(ROOM_CHECKED)
        modes.tighten(where, warn=around.warn)
        try:
            identity = own.ensure(
                where,
                node_id=planned.node_id,
                addresses=planned.addresses,
                now=around.clock.now(),
                warn=around.warn,
            )
        except OSError as error:
            raise preflight.cannot_write(where.folder, error=error) from error
        async with _port_held(planned, identity=identity, where=where, around=around):
            crash_points.reach(PORT_HELD)
            answer, accepted = await _ask(planned, identity=identity, where=where, around=around)
            return _write(accepted, answer=answer, planned=planned, where=where, around=around)


async def _ask(
    planned: plan.Join,
    *,
    identity: own.Identity,
    where: paths.Paths,
    around: surroundings.Surroundings,
) -> tuple[platform.Answer, answers.Accepted]:
    """Asks; once more with a new mesh key where another node has this one (a copied disk)."""
    answer, accepted = await _ask_once(
        planned, identity=identity, where=where, around=around, make_key=key.ensure
    )
    if accepted.mesh.refused == mesh.KEY_IN_USE:
        answer, accepted = await _ask_once(
            planned, identity=identity, where=where, around=around, make_key=key.replace
        )
    return answer, accepted


async def _ask_once(
    planned: plan.Join,
    *,
    identity: own.Identity,
    where: paths.Paths,
    around: surroundings.Surroundings,
    make_key: Callable[[paths.Paths], secret.Secret],
) -> tuple[platform.Answer, answers.Accepted]:
    try:
        public_key = keys.public_key_of(make_key(where))
    except OSError as error:
        raise preflight.cannot_write(where.folder, error=error) from error
    answer = await question.enroll(
        planned, identity=identity, around=around, mesh_public_key=public_key
    )
    accepted = answers.judge(answer.body, planned=planned, where=where, now=around.clock.now())
    return answer, accepted


@contextlib.asynccontextmanager
async def _port_held(
    planned: plan.Join,
    *,
    identity: own.Identity,
    where: paths.Paths,
    around: surroundings.Surroundings,
) -> AsyncIterator[None]:
    """Holds the Agent's port in listen mode, answering as the node that is about to be."""
    if planned.connectivity is agent_file.Connectivity.DIAL_OUT:
        yield
        return
    sockets = port.hold(planned.port)
    if sockets is None:
        if not await port.is_own_agent(planned.port, pin=identity.pin):
            raise checking.port_taken(planned.port)
        yield  # this machine's own Agent runs and will answer
        return
    async with provisional.answering(
        sockets, node_id=planned.node_id, where=where, clock=around.clock
    ):
        yield


def _write(
    accepted: answers.Accepted,
    *,
    answer: platform.Answer,
    planned: plan.Join,
    where: paths.Paths,
    around: surroundings.Surroundings,
) -> outcome.Outcome:
    """Writes the three files, the one that says "joined" last."""
    statement = accepted.held.statement
    now = around.clock.now()
    joined = join_file.JoinFile(
        platform_url=planned.url,
        platform_id=statement.platform_id,
        node_id=planned.node_id,
        mode=planned.mode,
        given_pins=planned.pins,
        pins=kept_pins(planned.pins, leaf_pin=answer.leaf.pin, fingerprint=answer.leaf.fingerprint),
        ca_pem=planned.ca_pem,
        enrollment_id=planned.token.enrollment_id,
        joined_at=now,
    )
    agent = agent_file.AgentFile(
        node_id=planned.node_id,
        generation=accepted.generation,
        connectivity=planned.connectivity,
        addresses=planned.addresses,
        port=planned.port,
        reported_labels=planned.labels,
        gateway_url=accepted.gateway_url,
        gateway_pins=accepted.gateway_pins,
        joined_at=now,
    )
    try:
        trust_file.write(where.trust, accepted.held)
        crash_points.reach(TRUST_SAVED)
        join_file.write(where.join, joined)
        crash_points.reach(JOIN_SAVED)
        grant_file.write(where.mesh, accepted.mesh.grant)
        agent_file.write(where.agent, agent)
    except OSError as error:
        raise failures.Temporary(
            f"The Platform has enrolled this machine, but {where.folder} can no longer be written "
            f"({error.strerror}).",
            hint="Make room there, then run the same command again: the token still works here.",
        ) from error
    states.step(states.State.CERTIFIED, states.Event.ANSWER_SAVED)
    crash_points.reach(AGENT_SAVED)
    return outcome.Outcome(
        already_joined=False,
        agent=agent,
        join=joined,
        where=where,
        trust_key_ids=tuple(key.key_id for key in statement.trust_keys),
        reachable=accepted.reachable,
        reachable_reason=accepted.reachable_reason,
    )


def kept_pins(
    given: tuple[pins.Pin, ...], *, leaf_pin: str, fingerprint: str
) -> tuple[pins.Pin, ...]:
    """The pins to keep: the hash of a whole certificate gives way to the pin of its key."""
    if not given:
        return ()
    others = (pin for pin in given if pin not in (leaf_pin, fingerprint))
    return (pins.parse_pin(leaf_pin), *others)
