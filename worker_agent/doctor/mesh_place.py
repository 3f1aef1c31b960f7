"""The mesh on this machine: its place, its interface, and when the Platform was heard there."""

import contextlib
import pathlib

from runtime_kit.wireguard import config, programs
from wire_protocol import findings
from wire_protocol import mesh as mesh_words
from worker_agent.doctor import legs
from worker_agent.doctor import seen as seen_kit
from worker_agent.mesh import grant_file, keeper
from worker_agent.settings import documents

_NETWORK_DEVICES = pathlib.Path("/sys/class/net")
_MOST_DEVICES = 4096


async def mesh(seen: seen_kit.Seen, *, around: legs.Around) -> tuple[findings.Finding, ...]:
    """Nothing where this node has no place in a mesh."""
    name = "mesh"
    if seen.agent is None or seen.join is None:
        return ()
    try:
        grant = grant_file.read(seen.where.mesh, reader=seen_kit.read)
    except documents.Damaged as error:
        return (findings.warning(name, f"{error} The Agent asks for its place again.", facts={}),)
    if grant is None:
        return ()
    member = keeper.Member(platform_id=seen.join.platform_id, node_id=seen.agent.node_id)
    device = _device_of(member.mark)
    facts: dict[str, object] = {"address": str(grant.address), "endpoint": str(grant.endpoint)}
    if device is None:
        lacking = next((one for one in ("ip", "wg") if programs.find(one) is None), None)
        why = f"{lacking} is not installed" if lacking else "the Agent may not make one"
        return (
            findings.needs_operator(
                name,
                f"This node has a place in the mesh ({grant.address}) and no interface: {why}.",
                command="apt install wireguard-tools iproute2   (the Agent then needs "
                "CAP_NET_ADMIN)",
                facts=facts,
            ),
        )
    return (await _standing(device, grant=grant, around=around, facts=facts),)


async def _standing(
    device: str, *, grant: mesh_words.Grant, around: legs.Around, facts: dict[str, object]
) -> findings.Finding:
    name = "mesh"
    facts["interface"] = device
    at = await _handshake(device, public_key=grant.platform_public_key)
    if at is None:
        return findings.transient(
            name,
            f"{device} is there ({grant.address}), and the Platform was not heard yet at "
            f"{grant.endpoint} (UDP).",
            command=f"wg show {device} latest-handshakes",
            facts=facts,
        )
    age = round(around.clock.now().timestamp() - at)
    facts["handshake_age_seconds"] = age
    if age > config.LIVE_SECONDS:
        return findings.transient(
            name,
            f"The Platform was last heard over {device} {age} s ago.",
            command=f"wg show {device} latest-handshakes",
            facts=facts,
        )
    return findings.ok(name, f"{device} is up as {grant.address}.", facts=facts)


def _device_of(mark: str) -> str | None:
    with contextlib.suppress(OSError):
        for entry in sorted(_NETWORK_DEVICES.iterdir())[:_MOST_DEVICES]:
            with contextlib.suppress(OSError):
                if (entry / "ifalias").read_text().strip() == mark:
                    return entry.name
    return None


async def _handshake(device: str, *, public_key: str) -> int | None:
    """When a peer last proved itself there; None for never, and where it cannot be asked."""
    try:
        said = await programs.run("wg", "show", device, "latest-handshakes")
    except programs.Fault:
        return None
    for line in said.decode(errors="replace").splitlines():
        key, _, moment = line.partition("\t")
        if key == public_key and moment.isdigit() and int(moment):
            return int(moment)
    return None
