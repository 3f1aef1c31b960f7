"""The node's session: how the running Agent says it stands, and whether the gateway lets it in.

For the second a short connection is opened beside the session (an errand): the handshake with this
machine's certificate and one hello, which asks for nothing, stores nothing and replaces nothing. It
names the running Agent's instance, so that it is not taken for a copy of this machine.
"""

from runtime_kit.mux import link as links
from wire_protocol import findings, problems
from worker_agent.doctor import legs
from worker_agent.doctor import seen as seen_kit
from worker_agent.identity import lock
from worker_agent.session import beside, connecting, told
from worker_agent.settings import agent_file, failures

_KINDS = {kind.value: kind for kind in problems.Kind}


async def no_gateway() -> tuple[findings.Finding, ...]:
    """For a node that dials out and was told of no gateway."""
    return (
        findings.needs_operator(
            "gateway",
            "This node dials out, and its Platform has named no gateway.",
            command="enlist serve --gateway-port   (on the Platform)",
        ),
    )


async def session(seen: seen_kit.Seen) -> tuple[findings.Finding, ...]:
    """What the running Agent tells of its session."""
    name = "session"
    if seen.agent is None or not lock.is_held(seen.where.agent_lock):
        return (findings.skipped(name, "The Agent does not run."),)
    dials_out = seen.agent.connectivity is agent_file.Connectivity.DIAL_OUT
    said = told.read(seen.where.session)
    if said is None:
        if not dials_out:
            return (findings.skipped(name, "This node listens and holds none."),)
        return (findings.transient(name, "The Agent has not said yet how its session stands."),)
    if not dials_out and said.state == "stopped":
        return (findings.skipped(name, "This node listens and holds none."),)
    return (_standing(said),)


def _standing(said: told.Told) -> findings.Finding:
    name = "session"
    facts = {
        "state": said.state,
        "gateway": said.gateway,
        "since": said.since,
        "last_heartbeat_at": said.last_heartbeat_at,
        "next_try_at": said.next_try_at,
    }
    if said.state == "open":
        text = f"Open at {said.gateway}, last heartbeat answered {said.last_heartbeat_at}."
        return findings.ok(name, text, facts=facts)
    reason = (said.reason or said.state).rstrip(".")
    if _KINDS.get(said.kind or "") is problems.Kind.NEEDS_OPERATOR:
        return findings.needs_operator(
            name, f"No session: {reason}.", command="enlist worker status", facts=facts
        )
    return findings.transient(name, f"No session at present: {reason}.", facts=facts)


async def admission(seen: seen_kit.Seen, *, around: legs.Around) -> tuple[findings.Finding, ...]:
    """Whether the Platform knows this machine's certificate, and takes the node for itself."""
    name = "admission"
    held = seen.held
    if held is None:
        return (findings.skipped(name, "Not before the join."),)
    using = beside.around(seen.where, held=held, clock=around.clock, environment=around.environment)
    trying = connecting.Connecting(seen.where, around=using, answer=_refuse)
    try:
        opened = await trying.open_errand()
    except connecting.NotOpened as fault:
        text = f"{fault.reason.rstrip('.')}."
        if fault.obstacle is connecting.Obstacle.PASSING:
            return (findings.transient(name, text, command="enlist doctor   (on the Platform)"),)
        command = "enlist nodes show NODE   (on the Platform)"
        if fault.obstacle is connecting.Obstacle.OTHER_KEY:
            command = "enlist worker refresh-trust"
        return (findings.needs_operator(name, text, command=command),)
    except failures.Failure as failure:
        return (
            findings.needs_operator(
                name, failure.message, command=failure.hint or "enlist worker status"
            ),
        )
    opened.link.close(reason="done")
    facts = {
        "gateway": opened.url,
        "by": opened.proof.name,
        "generation": opened.welcome.generation,
    }
    if opened.proof.name == "former":
        return (
            findings.warning(
                name,
                "The Platform knows only an earlier certificate of this machine: it was put back "
                "from a backup. The Agent renews by itself.",
                command="enlist worker renew",
                facts=facts,
            ),
        )
    return (findings.ok(name, "The Platform knows this machine and lets it in.", facts=facts),)


async def _refuse(_link: links.Link, _method: str, _body: bytes) -> bytes:
    raise links.Refusal("unknown", "This is a checkup, which answers nothing.")
