"""The API in the test's own process, over a Unix socket, on a store of either kind.

Everything is real but the processes: aiohttp's server, the gate, the store. `local` is the
administrator's door, `public` the one for API tokens, whose callers seem to come from loopback.
"""

import asyncio
import contextlib
import datetime
import os
import pathlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx

from platform_server.endpoints import (
    api_tokens,
    audit_log,
    doors,
    event_stream,
    health,
    http_door,
    http_server,
    master_key,
    measures,
    openapi,
    router,
    routes,
)
from platform_server.sealing import envelope, rotation
from platform_server.settings import groups
from platform_server.store import contract
from runtime_kit import clock as clock_kit

START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


class Api:
    """Clients for both doors, and what a test may move."""

    def __init__(self, folder: pathlib.Path, *, clock: clock_kit.ManualClock) -> None:
        self.clock = clock
        self.draining = asyncio.Event()
        self.local = _client(folder / "local.sock")
        self.public = _client(folder / "public.sock")

    async def token(self, *permissions: str) -> dict[str, str]:
        """Headers of a fresh API token with these permissions."""
        made = await self.local.post(
            "/api/v1/tokens", json={"name": "t", "permissions": list(permissions)}
        )
        assert made.status_code == 201, made.text
        return {"Authorization": f"Bearer {made.json()['token']}"}


@contextlib.asynccontextmanager
async def running(
    store: contract.Store,
    folder: pathlib.Path,
    *,
    settings: Mapping[str, Any] | None = None,
    own_uid: int | None = None,
    extra: tuple[routes.Route, ...] = (),
) -> AsyncIterator[Api]:
    """Serves until the end of the `async with`."""
    clock = clock_kit.ManualClock(START)
    api = Api(folder, clock=clock)
    group = groups.Settings.model_validate(settings or {})
    key = envelope.new_key()
    engine = rotation.Engine(
        engine_id="e1",
        key_path=folder / "master.key",
        keyring=envelope.Keyring([key], current=key.kek_id),
    )
    meter = measures.Meter()
    stream = event_stream.EventStream(
        most=group.api.event_readers, draining=api.draining, meter=meter
    )
    served: list[routes.Route] = []
    served += [
        *api_tokens.served(),
        *audit_log.served(),
        *event_stream.served(stream),
        *master_key.served(engine),
        *health.served(
            readiness=health.Readiness([]),
            gatherer=measures.Gatherer(meter),
            openapi=lambda: openapi.document(served),
        ),
        *extra,
    ]
    gate = doors.Gate(
        store,
        clock=clock,
        own_uid=os.geteuid() if own_uid is None else own_uid,
        trusted_proxies=group.enrollment.trusted_proxies,
    )
    servers: list[http_server.Server] = []
    for door, name in ((doors.Door.LOCAL, "local.sock"), (doors.Door.API, "public.sock")):
        server = http_server.Server(
            http_door.HttpDoor(
                router.Router(served),
                door=door,
                gate=gate,
                store=store,
                settings=group,
                clock=clock,
                meter=meter,
                draining=api.draining,
            ),
            connections=group.api.connections,
            draining=api.draining,
        )
        loop = asyncio.get_running_loop()
        server.listens_on(await loop.create_unix_server(server, path=str(folder / name)))
        servers.append(server)
    try:
        yield api
    finally:
        await api.local.aclose()
        await api.public.aclose()
        for server in servers:
            await server.drain(seconds=1)


def _client(path: pathlib.Path) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        transport=httpx.AsyncHTTPTransport(uds=str(path)), base_url="http://localhost", timeout=10
    )
