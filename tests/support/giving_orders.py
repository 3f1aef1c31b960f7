"""Orders as an operator gives them over the local socket, and what an Agent's log says of them."""

import collections
import json
import pathlib
import time
from typing import Any

import httpx

from tests.support import operators, real_platform

ENDED = ("done", "failed", "expired", "cancelled")
SECONDS = 60.0


def give(
    platform: real_platform.RealPlatform,
    node_id: str,
    *,
    kind: str = "refresh-trust",
    key: str | None = None,
    ttl_seconds: int = 600,
) -> dict[str, Any] | None:
    """The order, or None where the engine died before it answered."""
    headers = {} if key is None else {"Idempotency-Key": key}
    with operators.local(platform) as client:
        try:
            answer = client.post(
                f"/nodes/{node_id}/orders",
                json={"kind": kind, "ttl_seconds": ttl_seconds},
                headers=headers,
            )
        except httpx.TransportError:
            return None
    assert answer.status_code == 201, answer.text
    content = answer.json()
    assert isinstance(content, dict)
    return content


def listed(platform: real_platform.RealPlatform, node_id: str) -> list[dict[str, Any]]:
    """All orders of the node, the first first."""
    found = platform.api("GET", f"/nodes/{node_id}/orders?limit=500")["orders"]
    return list(reversed(found))


def wait_until_ended(
    platform: real_platform.RealPlatform, node_id: str, *, seconds: float = SECONDS
) -> list[dict[str, Any]]:
    """The node's orders once none is open."""
    deadline = time.monotonic() + seconds
    found = listed(platform, node_id)
    while any(one["state"] not in ENDED for one in found):
        assert time.monotonic() < deadline, f"still open: {found}"
        time.sleep(operators.PAUSE_SECONDS)
        found = listed(platform, node_id)
    return found


def taken(log: pathlib.Path) -> dict[tuple[int, ...], int]:
    """How often the Agent's log says that it took the order of each number."""
    return dict(collections.Counter(tuple(one["number"]) for one in _said(log, "Order taken")))


def ended(log: pathlib.Path) -> dict[tuple[int, ...], list[str]]:
    """How the order of each number ended, as the Agent's log has it; once each, if all is well."""
    found: dict[tuple[int, ...], list[str]] = {}
    for one in _said(log, "Order ended"):
        found.setdefault(tuple(one["number"]), []).append(one["stage"])
    return found


def _said(log: pathlib.Path, event: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines() if f'"{event}"' in line]
