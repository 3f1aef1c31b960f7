"""A real bundle server process over a folder, on a free port of loopback."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from tests.support import edge


@contextlib.asynccontextmanager
async def running(folder: Path, *arguments: str) -> AsyncIterator[edge.Listener]:
    """Starts it over `folder`/bundles and waits until it serves."""
    (folder / "bundles" / "sha256").mkdir(parents=True, exist_ok=True)
    async with edge.running(
        folder,
        *("--folder", str(folder / "bundles"), *arguments),
        module="platform_server.bundles",
    ) as server:
        yield server
