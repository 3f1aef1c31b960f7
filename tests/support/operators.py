"""What an operator does on the Platform's own machine, over its local socket, without a process.

The command line does the same and is tested elsewhere; a test that issues hundreds of tokens
cannot start it each time.
"""

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx

from tests.support import real_platform

ASK_SECONDS = 20.0
PAUSE_SECONDS = 0.05


@contextlib.contextmanager
def local(platform: real_platform.RealPlatform) -> Iterator[httpx.Client]:
    """A client of the whole API as the administrator."""
    with httpx.Client(
        transport=httpx.HTTPTransport(uds=str(platform.socket)),
        base_url="http://enlist/api/v1",
        timeout=ASK_SECONDS,
    ) as client:
        yield client


def issue(client: httpx.Client, node_id: str, **more: Any) -> str:
    """An enrollment token for the node."""
    answer = client.post("/enrollments", json={"node_id": node_id, **more})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["token"])


def nodes(client: httpx.Client) -> list[dict[str, Any]]:
    """All nodes, whatever the number of pages."""
    return _all(client, "/nodes", "nodes")


def enrollments(client: httpx.Client) -> list[dict[str, Any]]:
    """All enrollments."""
    return _all(client, "/enrollments", "enrollments")


def actions(client: httpx.Client, *, action: str) -> list[dict[str, Any]]:
    """All entries of the action log with this action."""
    return _all(client, "/audit", "entries", action=action)


def attempts(client: httpx.Client) -> list[dict[str, Any]]:
    """All entries of the enrollment audit."""
    return _all(client, "/enrollments/audit", "attempts")


def is_intact(platform: real_platform.RealPlatform) -> bool:
    """Whether `enlist audit verify` finds the chain whole."""
    return bool(json.loads(platform.enlist("audit", "verify", "-o", "json"))["intact"])


def wait_until(true: Callable[[], bool], *, what: str, seconds: float = 30.0) -> None:
    """Waits for another process, bounded; `what` is what a failing test says did not happen."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"within {seconds} s it did not happen that {what}"
        time.sleep(PAUSE_SECONDS)


def _all(client: httpx.Client, path: str, name: str, **query: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor: str | None = None
    while True:
        page = client.get(
            path, params={**query, "limit": 500, **({"cursor": cursor} if cursor else {})}
        )
        assert page.status_code == 200, page.text
        content = page.json()
        found += content[name]
        cursor = content.get("next_cursor")
        if not cursor:
            return found
