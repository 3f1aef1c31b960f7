"""The Agent's process and its port: who runs, who listens, and with which proxies."""

from collections.abc import Mapping

from runtime_kit import dial, failures, processes
from wire_protocol import findings
from worker_agent.doctor import legs
from worker_agent.doctor import seen as seen_kit
from worker_agent.door import port as port_kit
from worker_agent.identity import lock, own
from worker_agent.settings import agent_file, starting


async def agent(seen: seen_kit.Seen, *, around: legs.Around) -> tuple[findings.Finding, ...]:
    """Whether it runs, and whether it goes through the same proxy as this command."""
    if not seen.has_joined:
        return (findings.skipped("agent", "There is none before the join."),)
    where = seen.where
    if not lock.is_held(where.agent_lock):
        return (
            findings.needs_operator(
                "agent",
                "The Agent does not run.",
                command=starting.command(seen.where),
            ),
        )
    pid = processes.holder_of_flock(where.agent_lock)
    facts = {"pid": pid}
    theirs = None if pid is None else processes.environment_of(pid)
    if theirs is not None:
        for leg in legs.enrollment_legs(seen):
            own, other = _proxy(leg, around.environment), _proxy(leg, theirs)
            if own != other:
                return (
                    findings.warning(
                        "agent",
                        f"The Agent runs with another proxy ({other or 'none'}) than this command "
                        f"({own or 'none'}), so what is said of the legs here may differ for it.",
                        command="env | grep -i _proxy",
                        facts=facts,
                    ),
                )
    return (findings.ok("agent", "It runs.", facts=facts),)


async def port(seen: seen_kit.Seen) -> tuple[findings.Finding, ...]:
    """In listen mode: this very Agent answers on its port, and nobody else."""
    found = seen.agent
    if found is None:
        return (findings.skipped("port", "There is none before the join."),)
    if found.connectivity is not agent_file.Connectivity.LISTEN:
        return (findings.skipped("port", "This node dials out and listens on no port."),)
    facts: dict[str, object] = {"port": found.port, "addresses": list(found.addresses)}
    certificate = seen.identity.certificate
    if certificate is not None and await port_kit.is_own_agent(
        found.port, pin=own.pin_of(certificate)
    ):
        return (
            findings.ok(
                "port",
                f"The Agent answers on port {found.port}. Whether the Platform can reach it, "
                "enlist doctor says there.",
                facts=facts,
            ),
        )
    inodes = processes.listeners_on(found.port)
    if not inodes:
        return (
            findings.needs_operator(
                "port",
                f"Nothing listens on port {found.port}.",
                command=starting.command(seen.where),
                facts=facts,
            ),
        )
    pid = processes.with_socket(inodes)
    holder = None if pid is None else processes.name_of(pid)
    return (
        findings.needs_operator(
            "port",
            f"Port {found.port} is held by {holder or 'another program'}, not by this Agent.",
            command=f"ss -ltnp 'sport = :{found.port}'",
            facts={**facts, "holder": holder},
        ),
    )


def _proxy(leg: legs.Leg, environment: Mapping[str, str]) -> str | None:
    try:
        origin = leg.origin
        found = dial.find_proxy(origin.host, port=origin.port, environment=environment)
    except failures.NetworkFailure:
        return "one that cannot be used"
    return None if found is None else f"{found.host}:{found.port}"
