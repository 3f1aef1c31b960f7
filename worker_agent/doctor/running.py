"""The Agent's process and its port: who runs, who listens, and with which proxies.

Read from /proc, bounded. Known limit: another account's processes show no sockets, so that the
holder of a port may stay unnamed unless root asks.
"""

import contextlib
import os
import pathlib
from collections.abc import Mapping

from runtime_kit import dial, failures
from wire_protocol import findings
from worker_agent.doctor import legs
from worker_agent.doctor import seen as seen_kit
from worker_agent.door import port as port_kit
from worker_agent.identity import lock, own
from worker_agent.settings import agent_file

_PROC = pathlib.Path("/proc")
_LISTEN = "0A"  # TCP_LISTEN in /proc/net/tcp
_MOST_PROCESSES = 20_000
_MOST_BYTES = 1_048_576


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
                command=f"enlist agent --data-dir {where.folder}",
            ),
        )
    pid = _holder_of(where.agent_lock)
    facts = {"pid": pid}
    theirs = None if pid is None else _environment_of(pid)
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
    inodes = _listening(found.port)
    if not inodes:
        return (
            findings.needs_operator(
                "port",
                f"Nothing listens on port {found.port}.",
                command=f"enlist agent --data-dir {seen.where.folder}",
                facts=facts,
            ),
        )
    holder = _process_with(inodes)
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


def _holder_of(path: pathlib.Path) -> int | None:
    """The process that holds the flock on this file."""
    try:
        info = path.stat()
        device = f"{os.major(info.st_dev):02x}:{os.minor(info.st_dev):02x}:{info.st_ino}"
        lines = _read(_PROC / "locks").splitlines()
    except OSError:
        return None
    for line in lines:
        words = line.split()
        if len(words) > 5 and words[1] == "FLOCK" and words[5] == device and words[4].isdigit():
            return int(words[4])
    return None


def _environment_of(pid: int) -> dict[str, str] | None:
    try:
        content = _read(_PROC / str(pid) / "environ")
    except OSError:
        return None
    pairs = (entry.partition("=") for entry in content.split("\0") if entry)
    return {name: value for name, _, value in pairs}


def _listening(port: int) -> set[str]:
    """The inodes of the sockets that listen on this port."""
    found: set[str] = set()
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in _read(_PROC / "net" / name).splitlines()[1:]:
                words = line.split()
                if words[3] == _LISTEN and int(words[1].rpartition(":")[2], 16) == port:
                    found.add(words[9])
    return found


def _process_with(inodes: set[str]) -> str | None:
    wanted = {f"socket:[{inode}]" for inode in inodes}
    processes = [name for name in os.listdir(_PROC) if name.isdigit()]  # noqa: PTH208 - names alone
    for name in processes[:_MOST_PROCESSES]:
        with contextlib.suppress(OSError):
            for entry in os.scandir(_PROC / name / "fd"):
                with contextlib.suppress(OSError):
                    if os.readlink(entry.path) in wanted:  # noqa: PTH115 - a path from scandir
                        return f"{_read(_PROC / name / 'comm').strip()} (pid {name})"
    return None


def _read(path: pathlib.Path) -> str:
    with path.open("rb") as file:
        return file.read(_MOST_BYTES).decode(errors="replace")
