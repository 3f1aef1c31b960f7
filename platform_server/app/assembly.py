"""Builds every part of an engine once and joins them; nothing here decides anything.

`build` runs before anything is served: what cannot be built stops the start. The tasks it gives
share one fate (runtime_kit.supervise).
"""

import asyncio
import dataclasses
import functools
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from platform_server.app import (
    api_tls,
    certificates,
    data_dir,
    doctoring,
    enrolling,
    failures,
    housekeeping,
    orders,
    own_bundle,
)
from platform_server.endpoints import (
    access_table,
    api_tokens,
    audit_log,
    backups,
    bundle_routes,
    doors,
    event_stream,
    health,
    http_door,
    http_server,
    master_key,
    measures,
    openapi,
    router,
)
from platform_server.gateway import gateway
from platform_server.sealing import envelope, key_file, rotation
from platform_server.settings import groups
from platform_server.store import contract
from runtime_kit import clock as clock_kit
from runtime_kit import supervise
from runtime_kit.http1 import limits as http1_limits
from runtime_kit.http1 import server as http1_server
from wire_protocol import admin, problems, product

_LISTENER_IDLE_SECONDS: Final = 75.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """A built engine."""

    servers: Mapping[doors.Door, http_server.Server]
    enroll_server: http1_server.Server
    gateway: gateway.Gateway | None
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
    try:
        taking = await enrolling.build(
            given,
            settings=settings,
            store=store,
            keyring=keyring,
            clock=clock,
            kept=kept,
            engine_id=engine_id,
        )
    except ValueError as fault:
        raise failures.CannotStart(str(fault), exit_code=problems.Exit.INVALID) from fault
    meter = measures.Meter()
    connected = taking.connected.gateway
    if connected is not None:
        meter.watch_gateway(
            sessions=functools.partial(len, connected.sessions),
            refused=lambda: connected.refused_handshakes,
        )
    served = [
        *taking.operator_routes,
        *taking.anonymous_routes,
        *api_tokens.served(),
        *audit_log.served(),
        *backups.served(
            backups.Backups(
                url=settings.store.database_url or f"sqlite:///{given.data_dir}/enlist.db",
                data_dir=given.data_dir,
                config_file=given.config_file,
                keyring=keyring,
            )
        ),
        *bundle_routes.BundleRoutes(
            given.data_dir / data_dir.BUNDLES, settings=settings.bundles, url=given.bundle_url
        ).served(),
        *event_stream.served(
            event_stream.EventStream(
                most=settings.api.event_readers, draining=draining, meter=meter
            )
        ),
        *master_key.served(engine),
        *doctoring.served(
            given,
            settings=settings,
            store=store,
            clock=clock,
            asker=taking.asker,
            api_pins=lambda: kept.api_pins,
        ),
        *health.served(
            readiness=health.Readiness([_store_check(store), *taking.mesh.checks]),
            gatherer=measures.Gatherer(meter),
            openapi=lambda: described,
        ),
    ]
    access_table.require_complete(frozenset(route.key for route in served))
    if not settings.dispatch_enabled:
        served = [route for route in served if route not in taking.anonymous_routes]
    described = openapi.document(served)
    gate = doors.Gate(
        store,
        clock=clock,
        own_uid=os.geteuid(),
        trusted_proxies=settings.enrollment.trusted_proxies,
    )

    def server(door: doors.Door) -> http_server.Server:
        return http_server.Server(
            http_door.HttpDoor(
                router.Router(served),
                door=door,
                gate=gate,
                store=store,
                settings=settings,
                clock=clock,
                meter=meter,
                draining=draining,
            ),
            connections=settings.api.connections,
            draining=draining,
        )

    keeper = housekeeping.Housekeeper(store, clock=clock, settings=settings, engine=engine)

    async def close() -> None:
        taking.forget()
        await keeper.withdraw()

    return Parts(
        servers={door: server(door) for door in doors.Door},
        enroll_server=_enroll_server(
            meter.counted(taking.socket_door.answer, clock=clock), settings=settings
        ),
        gateway=connected,
        api_tls=kept.api_tls,
        tasks={
            "certificates": kept.keep,
            "master-key": keeper.keep_master_key,
            "purge": keeper.keep_purging,
            "own-bundle": functools.partial(
                own_bundle.keep,
                own_bundle.Place(
                    data_dir=given.data_dir,
                    folder=given.data_dir / data_dir.BUNDLES,
                    settings=settings,
                ),
                store=store,
                clock=clock,
            ),
            **taking.tasks,
        },
        close=close,
        ready=orders.Ready(
            version=product.VERSION,
            pins=kept.enrollment_pins if given.enrollment_url is not None else (),
            api_pins=kept.api_pins,
            gateway_pins=kept.gateway_pins,
        ),
    )


def _enroll_server(answer: measures.Answer, *, settings: groups.Settings) -> http1_server.Server:
    """Serves the listener's processes, which have limited everything already."""
    most = settings.enrollment.connections * settings.enrollment.workers
    return http1_server.Server(
        answer,
        limits=http1_limits.Limits(
            body_bytes=settings.enrollment.body_bytes,
            idle_s=_LISTENER_IDLE_SECONDS,
            sockets=2 * most + 16,
            in_work=most + 16,
        ),
    )


def _store_check(store: contract.Store) -> health.Probe:
    async def check() -> admin.HealthCheck:
        found = await store.health()
        return admin.HealthCheck(
            name="store", status="ok" if found.ok else "failed", detail=found.detail
        )

    return check
