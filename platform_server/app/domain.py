"""Builds the part of an engine that enrolls machines, knows nodes and holds trust.

Made by `assembly` before anything is served. What it gives: the routes, the answerer for
run/enroll.sock, the tasks that run beside the servers, and what to call when the ports' keys or
names have changed.
"""

import dataclasses
import functools
import logging
import pathlib
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from platform_server.endpoints import (
    enroll_door,
    enroll_server,
    enrollments,
    nodes,
    platform_routes,
    routes,
)
from platform_server.enrollment import attempts, limiter
from platform_server.nodes import asking, configured, leading, probe, reach
from platform_server.sealing import envelope
from platform_server.settings import groups
from platform_server.store import contract
from platform_server.tokens import ending
from platform_server.trust import authority, client_certificate, statements
from runtime_kit import clock as clock_kit
from runtime_kit import supervise

_LOG = logging.getLogger(__name__)
_CHORES_SECONDS: Final = 60.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """The built part."""

    routes: Sequence[routes.Route]
    """All operator routes of nodes, enrollments and the Platform, and the two anonymous ones."""
    socket_door: enroll_server.SocketDoor
    """Its `answer` serves run/enroll.sock."""
    tasks: Mapping[str, supervise.Work]
    """To be supervised."""
    publish: Callable[[], Awaitable[None]]
    """To be awaited when the ports' keys or addresses have changed."""
    trust: authority.Authority | None


async def build(
    store: contract.Store,
    *,
    settings: groups.Settings,
    keyring: envelope.Keyring,
    clock: clock_kit.Clock,
    run_folder: pathlib.Path,
    whereabouts: Callable[[], platform_routes.Whereabouts],
    ports_changed: Callable[[], Awaitable[None]],
) -> Domain:
    """Builds it, and with dispatch on publishes trust. Raises `StoreError` and `OSError`.

    `whereabouts` says where machines enroll and by which pins, now; `ports_changed` is awaited
    after an operator has turned a port's key over.
    """
    operators = configured.of_settings(settings)
    trust: authority.Authority | None = None
    identity = client_certificate.ClientIdentity(run_folder / "client.pem")
    if settings.dispatch_enabled:
        trust = authority.Authority(
            store,
            keyring=keyring,
            clock=clock,
            identity=identity,
            environment=settings.platform.environment,
        )
        await trust.start(_facts(whereabouts()))
    asker = asking.Asker(
        identity=identity, clock=clock, networks=settings.enrollment.agent_networks
    )
    cap = attempts.Cap(
        entries=settings.audit.enrollment_entries, days=settings.audit.enrollment_days
    )
    door = enroll_door.EnrollDoor(
        store,
        trust=trust,
        operators=operators,
        reacher=reach.Reacher(asker),
        rules=_rules(settings, cap=cap),
        clock=clock,
    )
    tasks: dict[str, supervise.Work] = {
        "enrollment-chores": functools.partial(_chores, store, clock=clock, cap=cap)
    }
    if trust is not None:
        tasks["trust"] = trust.keep
        tasks["probe"] = probe.Prober(
            store,
            asker=asker,
            operators=operators,
            pace=probe.Pace(
                interval_seconds=settings.probe.interval_seconds,
                timeout_seconds=settings.probe.timeout_seconds,
                concurrency=settings.probe.concurrency,
                failures=settings.probe.failures,
            ),
            clock=clock,
            chance=random.SystemRandom(),
        ).run

    async def publish() -> None:
        if trust is not None:
            await trust.publish(_facts(whereabouts()))

    return Domain(
        routes=(
            *nodes.Nodes(operators).served(),
            *enrollments.Enrollments(
                operators=operators,
                invitation=None
                if trust is None
                else functools.partial(
                    _invitation, trust, settings=settings, whereabouts=whereabouts
                ),
                cap=cap,
            ).served(),
            *platform_routes.PlatformRoutes(
                trust=trust,
                keyring=keyring,
                whereabouts=whereabouts,
                ports_changed=ports_changed,
            ).served(),
            *enroll_server.routes_of(door),
        ),
        socket_door=enroll_server.SocketDoor(door),
        tasks=tasks,
        publish=publish,
        trust=trust,
    )


def _facts(here: platform_routes.Whereabouts) -> statements.Facts:
    return statements.Facts(enrollment_pins=tuple(here.pins), enrollment_url=here.enrollment_url)


def _invitation(
    trust: authority.Authority,
    *,
    settings: groups.Settings,
    whereabouts: Callable[[], platform_routes.Whereabouts],
) -> enrollments.Invitation:
    """With public roots a pin would only break when other people renew their key."""
    here = whereabouts()
    pinned = settings.enrollment.authenticate == "pins"
    return enrollments.Invitation(
        platform_url=here.enrollment_url,
        pins=here.pins if pinned else (),
        trust_key_ids=platform_routes.key_ids_of(trust.published),
    )


def _rules(settings: groups.Settings, *, cap: attempts.Cap) -> enroll_door.Rules:
    return enroll_door.Rules(
        infra=settings.platform.infra,
        environment=settings.platform.environment,
        limits=limiter.Limits(
            per_minute=settings.enrollment.attempts_per_minute,
            per_address=settings.enrollment.failures_per_address,
            per_token=settings.enrollment.failures_per_token,
        ),
        cap=cap,
        agent_networks=tuple(settings.enrollment.agent_networks),
    )


async def _chores(store: contract.Store, *, clock: clock_kit.Clock, cap: attempts.Cap) -> None:
    """Runs for ever: writes down what has expired, forgets what is old."""
    lease = leading.Leading(store, name="enrollment-chores", clock=clock)
    while True:
        try:
            if await lease.holds():
                await _clean(store, clock=clock, cap=cap)
        except contract.StoreError as fault:
            _LOG.warning("Old enrollments were not cleaned up", extra={"reason": str(fault)})
        await clock.sleep(_CHORES_SECONDS)


async def _clean(store: contract.Store, *, clock: clock_kit.Clock, cap: attempts.Cap) -> None:
    now = clock.now()
    await store.transact(functools.partial(ending.expire_due, now=now))
    await store.transact(functools.partial(ending.purge, now=now))
    await store.transact(functools.partial(attempts.purge, now=now, cap=cap))
    if store.dialect is contract.Dialect.POSTGRESQL:
        await store.transact(functools.partial(limiter.purge, now=now))
