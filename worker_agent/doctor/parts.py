"""What a support archive holds of a worker: its files' names and modes, and what is public in them.

The key is never opened for it. Of the four other files only fields that are public go in, named
one by one, so that a field added later stays out until somebody decides. Names and labels of the
machine are in it, since support is about them.
"""

import json
from collections.abc import Iterator

from runtime_kit import file_rules, processes
from wire_protocol import times
from worker_agent.doctor import seen as seen_kit
from worker_agent.identity import own

_LOG_BYTES = 262_144


def of(seen: seen_kit.Seen) -> Iterator[tuple[str, bytes]]:
    """Name and content of each part."""
    yield "files.txt", file_rules.listing(seen.where.folder).encode()
    yield "worker.json", json.dumps(_public(seen), indent=2).encode()
    pid = processes.holder_of_flock(seen.where.agent_lock)
    log = None if pid is None else processes.log_of(pid, most_bytes=_LOG_BYTES)
    if log is not None:
        yield "log.txt", log


def _public(seen: seen_kit.Seen) -> dict[str, object]:
    agent, join, held = seen.agent, seen.join, seen.held
    certificate = seen.identity.certificate
    return {
        "agent": None
        if agent is None
        else {
            "node_id": agent.node_id,
            "generation": agent.generation,
            "connectivity": agent.connectivity.value,
            "addresses": list(agent.addresses),
            "port": agent.port,
            "reported_labels": agent.reported_labels,
            "gateway_url": agent.gateway_url,
            "gateway_pins": list(agent.gateway_pins),
            "joined_at": times.to_rfc3339(agent.joined_at),
        },
        "join": None
        if join is None
        else {
            "platform_url": join.platform_url,
            "platform_id": join.platform_id,
            "mode": join.mode.value,
            "pins": list(join.pins),
            "enrollment_id": join.enrollment_id,
        },
        "trust": None
        if held is None
        else {
            "epoch": held.statement.epoch,
            "serial": held.statement.serial,
            "issued_at": times.to_rfc3339(held.statement.issued_at),
            "key_ids": [key.key_id for key in held.statement.trust_keys],
        },
        "identity": None
        if certificate is None
        else {
            "pin": own.pin_of(certificate),
            "not_after": times.to_rfc3339(certificate.not_valid_after_utc),
        },
        "faults": list(seen.faults),
    }
