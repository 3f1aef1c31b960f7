"""Builds every part of an engine once and joins them; nothing here decides anything.

`build` runs before anything is served: what cannot be built stops the start. The tasks it gives
share one fate (runtime_kit.supervise).
"""

import asyncio
import dataclasses
import logging
import os
from collections.abc import Awaitable, Callable, Mapping

from platform_server.app import api_tls, certificates, data_dir, failures, housekeeping, orders
from platform_server.endpoints import (
    api_tokens,
    audit_log,
    doors,
    event_stream,
    health,
    http_door,
    master_key,
    measures,
    openapi,
    router,
    routes,
)
from platform_server.sealing import envelope, key_file, rotation
from platform_server.settings import groups
from platform_server.store import contract
from runtime_kit import clock as clock_kit
from runtime_kit import supervise
from wire_protocol import admin, problems, product

_LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """A built engine."""

    servers: Mapping[doors.Door, http_door.Server]
    api_tls: api_tls.ApiTls | None
    tasks: Mapping[str, supervise.Work]
    close: Callable[[], Awaitable[None]]
    ready: orders.Ready


async def build(
    given: orders.Orders,
    *,
    settings: groups.Settings,
    store: contract.Store,
    keyring: envelope.Keyring,
    clock: clock_kit.Clock,
    engine_id: str,
    draining: asyncio.Event,
) -> Parts:
    """Builds all parts; raises `CannotStart`."""
    engine = rotation.Engine(
        engine_id=engine_id,
        key_path=data_dir.master_key_path(given.data_dir, environ=os.environ),
        keyring=keyring,
    )
    try:
        await rotation.advance(store, engine=engine, now=clock.now())
    except (envelope.CannotOpen, key_file.Unusable) as fault:
        raise failures.CannotStart(str(fault), exit_code=problems.Exit.NEEDS_OPERATOR) from fault
    kept = certificates.Certificates(
        store, given=given, settings=settings, keyring=keyring, clock=clock
    )
    await kept.ensure()
    meter = measures.Meter()
    served = [
        *api_tokens.served(),
        *audit_log.served(),
        *event_stream.served(
            event_stream.EventStream(
                most=settings.api.event_readers, draining=draining, meter=meter
            )
        ),
        *master_key.served(engine),
        *health.served(
            readiness=health.Readiness([_store_check(store)]),
            gatherer=measures.Gatherer(meter),
            openapi=lambda: described,
        ),
    ]
    described = openapi.document(served)
    gate = doors.Gate(
        store,
        clock=clock,
        own_uid=os.geteuid(),
        trusted_proxies=settings.enrollment.trusted_proxies,
    )
    enroll_paths = (product.ENROLL_PATH, product.TRUST_PATH)
    everything = [
        route for route in served if route.path not in enroll_paths or settings.dispatch_enabled
    ]
    at_the_door = [route for route in served if route.path in enroll_paths]

    def server(door: doors.Door, chosen: list[routes.Route]) -> http_door.Server:
        return http_door.Server(
            http_door.HttpDoor(
                router.Router(chosen),
                door=door,
                gate=gate,
                store=store,
                settings=settings,
                clock=clock,
                meter=meter,
                body_bytes=settings.enrollment.body_bytes
                if door is doors.Door.ENROLL
                else settings.api.body_bytes,
            ),
            connections=settings.api.connections
            if door is doors.Door.API
            else settings.enrollment.connections * settings.enrollment.workers * 2 + 64,
            draining=draining,
        )

    keeper = housekeeping.Housekeeper(store, clock=clock, settings=settings, engine=engine)

    async def close() -> None:
        await keeper.withdraw()

    return Parts(
        servers={
            doors.Door.LOCAL: server(doors.Door.LOCAL, everything),
            doors.Door.API: server(doors.Door.API, everything),
            doors.Door.ENROLL: server(doors.Door.ENROLL, at_the_door),
        },
        api_tls=kept.api_tls,
        tasks={
            "certificates": kept.keep,
            "master-key": keeper.keep_master_key,
            "purge": keeper.keep_purging,
        },
        close=close,
        ready=orders.Ready(
            version=product.VERSION, pins=kept.enrollment_pins, api_pins=kept.api_pins
        ),
    )


def _store_check(store: contract.Store) -> health.Probe:
    async def check() -> admin.HealthCheck:
        found = await store.health()
        return admin.HealthCheck(
            name="store", status="ok" if found.ok else "failed", detail=found.detail
        )

    return check
