"""Builds the parts that take machines in: trust, the anonymous door, the probe and their routes.

With dispatch off there is no trust and no probe: keys stay unpublished, issuing is refused, and
nothing is dialled.
"""

import contextlib
import dataclasses
import functools
import os
import pathlib
import random
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from platform_server.app import (
    certificates,
    clouding,
    connecting,
    data_dir,
    local_machines,
    meshing,
    operating,
    orders,
)
from platform_server.bundles import places
from platform_server.endpoints import (
    enroll_decision,
    enroll_door,
    enroll_server,
    enrollments,
    invitations,
    node_scheduling,
    nodes,
    platform_routes,
    routes,
)
from platform_server.enrollment import attempts, certificate, limiter
from platform_server.gateway import gateway
from platform_server.nodes import asking, chores, configured, liveness, probe, reach
from platform_server.sealing import envelope
from platform_server.settings import groups
from platform_server.store import contract
from platform_server.trust import authority, client_certificate, statements
from runtime_kit import clock as clock_kit
from runtime_kit import supervise
from wire_protocol import ids, pins

_CLIENT: Final = "client-{pid}.pem"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Enrolling:
    """What the engine serves and runs for nodes."""

    operator_routes: Sequence[routes.Route]
    anonymous_routes: Sequence[routes.Route]
    socket_door: enroll_server.SocketDoor
    tasks: Mapping[str, supervise.Work]
    client_file: pathlib.Path | None
    asker: asking.Asker | None
    mesh: meshing.Meshing
    connected: connecting.Connecting

    def forget(self) -> None:
        """Removes the client certificate's file; its key was this process's alone."""
        if self.client_file is not None:
            self.client_file.unlink(missing_ok=True)


class Whereabouts:
    """Where machines reach this Platform, and the pins they are to expect there."""

    def __init__(
        self, *, given: orders.Orders, settings: groups.Settings, kept: certificates.Certificates
    ) -> None:
        self._given = given
        self._settings = settings
        self._kept = kept

    @property
    def url(self) -> str | None:
        """The enrollment port, else the API where that is https."""
        if self._given.enrollment_url is not None:
            return self._given.enrollment_url
        return self._given.api_url if self._given.api_url.startswith("https:") else None

    @property
    def pins(self) -> tuple[pins.Pin, ...]:
        """None where machines go by public roots (`[enrollment] authenticate`)."""
        if self._settings.enrollment.authenticate == "public-roots":
            return ()
        if self._given.enrollment_url is not None:
            return tuple(self._kept.enrollment_pins)
        return tuple(self._kept.api_pins)

    @property
    def bundles(self) -> invitations.Bundles | None:
        """Where a bare machine finds an installer and something to install, and the pins there.

        The bundle port serves with the enrollment port's key, whatever machines that join go by.
        """
        folder = self._given.data_dir / data_dir.BUNDLES
        url, known = self._given.bundle_url, tuple(self._kept.enrollment_pins)
        if url is None or not known or not places.has_something(folder):
            return None
        return invitations.Bundles(url=url, pins=known)

    def shown(self) -> platform_routes.Whereabouts:
        """As `/platform` tells it; where no nodes are taken, nothing of where they would come."""
        taking = self._settings.dispatch_enabled
        identity = self._kept.enrollment if taking else None
        return platform_routes.Whereabouts(
            enrollment_url=self.url if taking else None,
            pins=self.pins if taking else (),
            certificate_sha256=None if identity is None else identity.fingerprint,
            api_pins=tuple(self._kept.api_pins),
            gateway_is_on=self._kept.gateway is not None,
            bundle_url=self._given.bundle_url,
        )

    def facts(self) -> statements.Facts:
        """As trust statements tell it."""
        return statements.Facts(
            enrollment_pins=self.pins,
            gateway_pins=tuple(self._kept.gateway_pins),
            enrollment_url=self.url,
            gateway_urls=tuple(self._given.gateway_urls),
        )


async def build(
    given: orders.Orders,
    *,
    settings: groups.Settings,
    store: contract.Store,
    keyring: envelope.Keyring,
    clock: clock_kit.Clock,
    kept: certificates.Certificates,
    engine_id: str,
) -> Enrolling:
    """Builds them; raises `ValueError` for a configured node out of shape."""
    operators = configured.of_settings(settings)
    where = Whereabouts(given=given, settings=settings, kept=kept)
    cap = attempts.Cap(
        entries=settings.audit.enrollment_entries, days=settings.audit.enrollment_days
    )
    trust: authority.Authority | None = None
    mesh = meshing.none()
    reacher: reach.Reacher | None = None
    asker: asking.Asker | None = None
    client_file: pathlib.Path | None = None
    tasks: dict[str, supervise.Work] = {
        "enrollment-chores": functools.partial(chores.keep, store, clock=clock, cap=cap)
    }
    if settings.dispatch_enabled:
        client_file = _client_file(given.data_dir / data_dir.RUN)
        identity = client_certificate.ClientIdentity(client_file)
        trust = authority.Authority(
            store,
            keyring=keyring,
            clock=clock,
            identity=identity,
            environment=settings.platform.environment,
            place=f"{socket.gethostname()}:{given.data_dir.resolve()}",
        )
        await trust.start(where.facts())
        mesh = await meshing.build(
            given,
            settings=settings,
            store=store,
            keyring=keyring,
            clock=clock,
            platform_id=trust.published.statement.platform_id,
        )
        asker = asking.Asker(
            identity=identity, clock=clock, networks=settings.enrollment.agent_networks
        )
        reacher = reach.Reacher(asker)
        prober = probe.Prober(
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
            lack=mesh.lack,
            exchanger=asker,
            environment=settings.platform.environment,
        )
        # What another engine has published may be a switch of the port's key: serve it too.
        tasks |= {
            "trust": functools.partial(trust.keep, on_change=kept.follow),
            "probe": prober.run,
            **mesh.tasks,
        }
        kept.on_change = _publisher(trust, where=where)
    else:  # nobody asks the nodes: none of them may go on looking ready
        now = clock.now()
        await store.transact(functools.partial(liveness.forget_answers, now=now))
    connected = await connecting.build(
        given,
        settings=settings,
        store=store,
        trust=trust,
        operators=operators,
        asker=asker,
        kept=kept,
        engine_id=engine_id,
        clock=clock,
        mesh=mesh,
    )
    invite = _invitation(trust, where=where)
    parts = clouding.Given(
        given=given,
        settings=settings,
        store=store,
        keyring=keyring,
        trust=trust,
        operators=operators,
        invite=invite,
        clock=clock,
    )
    clouded = clouding.build(parts)
    if trust is not None:
        await clouding.ensure_local(parts)
    operated = operating.build(
        given,
        settings=settings,
        store=store,
        trust=trust,
        given=connected.given,
        operators=operators,
        more=clouded.known,
        clock=clock,
    )
    door = enroll_door.EnrollDoor(
        store,
        trust=trust,
        operators=operators,
        reacher=reacher,
        rules=_rules(settings, cap=cap),
        clock=clock,
        places=mesh.places,
        joined=_joined(connected.gateway),
        ordered_changed=operated.changed,
        gateway_near=functools.partial(
            local_machines.gateway_near,
            bridge=local_machines.address(settings),
            gateways=tuple(given.gateway_urls),
        ),
    )
    return Enrolling(
        operator_routes=(
            *nodes.Nodes(operators).served(),
            *node_scheduling.NodeScheduling(operators).served(),
            *enrollments.Enrollments(operators=operators, invitation=invite, cap=cap).served(),
            *platform_routes.PlatformRoutes(
                trust=trust,
                keyring=keyring,
                whereabouts=where.shown,
                ports_changed=kept.ensure_now,
            ).served(),
            *connected.operator_routes,
            *operated.operator_routes,
            *clouded.served(operated.changed),
        ),
        anonymous_routes=enroll_server.routes_of(
            door, places=enroll_server.Places(settings.enrollment.connections)
        ),
        socket_door=enroll_server.SocketDoor(door),
        tasks={**tasks, **connected.tasks, **operated.tasks, **clouded.tasks},
        client_file=client_file,
        asker=asker,
        mesh=mesh,
        connected=connected,
    )


def _rules(settings: groups.Settings, *, cap: attempts.Cap) -> enroll_decision.Rules:
    group = settings.enrollment
    return enroll_decision.Rules(
        infra=settings.platform.infra,
        environment=settings.platform.environment,
        limits=limiter.Limits(
            per_minute=group.attempts_per_minute,
            per_address=group.failures_per_address,
            per_token=group.failures_per_token,
        ),
        cap=cap,
        agent_networks=group.agent_networks,
    )


def _joined(gate: gateway.Gateway | None) -> enroll_door.Joined | None:
    if gate is None:
        return None

    def joined(node_id: ids.NodeId, offered: certificate.MachineCertificate) -> None:
        gate.joined(node_id, pin=offered.pin, certificate_pem=offered.pem)

    return joined


def _publisher(trust: authority.Authority, *, where: Whereabouts) -> certificates.OnChange:
    async def publish() -> None:
        await trust.publish(where.facts())

    return publish


def _invitation(
    trust: authority.Authority | None, *, where: Whereabouts
) -> Callable[[], invitations.Invitation] | None:
    if trust is None:
        return None

    def invite() -> invitations.Invitation:
        return invitations.Invitation(
            platform_url=where.url,
            gateway_url=next(iter(trust.published.statement.gateway_urls), None),
            pins=where.pins,
            trust_key_ids=platform_routes.key_ids_of(trust.published),
            bundles=where.bundles,
        )

    return invite


def _client_file(run: pathlib.Path) -> pathlib.Path:
    """A file of this process's own; those of processes that were killed are removed."""
    for old in run.glob(_CLIENT.format(pid="*")):
        if not pathlib.Path("/proc", old.stem.removeprefix("client-")).exists():
            with contextlib.suppress(FileNotFoundError):
                old.unlink()
    return run / _CLIENT.format(pid=os.getpid())
