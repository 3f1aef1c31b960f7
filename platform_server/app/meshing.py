"""Builds the mesh's parts for one engine, or none where the mesh is off.

With it on, an engine that could never make an interface does not start: it says what it lacks. One
that fails later goes on serving, and says so in its health.
"""

import dataclasses
import functools
import pathlib
import random
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from platform_server.app import addresses, failures, orders
from platform_server.endpoints import health
from platform_server.mesh import founding, hub, places, readiness
from platform_server.nodes import requirement
from platform_server.sealing import envelope
from platform_server.settings import groups
from platform_server.store import contract
from runtime_kit import clock as clock_kit
from runtime_kit import supervise
from runtime_kit.mux import link as links
from runtime_kit.wireguard import backends, config, device, programs
from wire_protocol import admin, ids, mesh, problems, session, strict_json

_MARK: Final = "enlist mesh platform"
Further = Callable[[ids.NodeId, bytes], Awaitable[bytes]]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Meshing:
    """What the engine serves and runs for the mesh."""

    places: places.Places
    lack: requirement.Requirement
    further: Mapping[session.Ask, Further]
    on_up: list[Callable[[ids.NodeId], None]]
    tasks: Mapping[str, supervise.Work]
    checks: Sequence[health.Probe]


def none() -> Meshing:
    """Where the mesh is off."""
    closed = places.Places(None, chance=random.SystemRandom())
    return Meshing(
        places=closed,
        lack=requirement.nothing,
        further={session.Ask.MESH: _nobody},
        on_up=[],
        tasks={},
        checks=(),
    )


async def build(
    given: orders.Orders,
    *,
    settings: groups.Settings,
    store: contract.Store,
    keyring: envelope.Keyring,
    clock: clock_kit.Clock,
    platform_id: str,
) -> Meshing:
    """Builds them; raises `CannotStart` where this process cannot make an interface."""
    chance = random.SystemRandom()
    group = settings.mesh
    if not group.enabled:
        return none()
    _require_means()
    found = await founding.found(
        store,
        keyring=keyring,
        network=group.network,
        endpoint=endpoint(given, group=group),
        keepalive_seconds=group.keepalive_seconds,
        mtu=group.mtu,
        chance=chance,
        now=clock.now(),
    )
    owners = f"{_MARK} {platform_id} "
    make = functools.partial(
        device.ensure,
        _wanted(found, group=group, owner=f"{owners}{secrets.token_hex(8)}"),
        backend=backends.of_this_machine(),
        owners=owners,
    )
    kept = hub.Hub(store, mesh=found, make=make, clock=clock, chance=chance)
    watch = readiness.Watch(store, clock=clock)
    giving = places.Places(found, chance=chance)
    answer = _answer(store, giving=giving, clock=clock, environment=settings.platform.environment)
    return Meshing(
        places=giving,
        lack=watch.lack if group.required else requirement.nothing,
        further={session.Ask.MESH: answer},
        on_up=watch.on_up,
        tasks={"mesh": kept.run, "mesh-watch": watch.run},
        checks=(_check(kept),),
    )


async def _nobody(node_id: ids.NodeId, body: bytes) -> bytes:
    """The answer where there is no mesh."""
    del node_id, body
    return mesh.Answer().to_bytes()


def _answer(
    store: contract.Store,
    *,
    giving: places.Places,
    clock: clock_kit.Clock,
    environment: str,
) -> Further:
    async def answer(node_id: ids.NodeId, body: bytes) -> bytes:
        try:
            request = mesh.parse_request(body)
        except strict_json.Malformed as fault:
            raise links.Refusal(session.Refusal.INVALID.value, str(fault)) from fault
        stands = await store.read(  # as a rule, for many nodes that come back at once
            lambda tx: giving.find_standing(tx, node_id=node_id, public_key=request.public_key)
        )
        if stands is not None:
            return stands.to_bytes()
        given = await store.transact(
            lambda tx: giving.over_session(
                tx,
                node_id=node_id,
                public_key=request.public_key,
                environment=environment,
                now=clock.now(),
            )
        )
        return given.to_bytes()

    return answer


def _check(kept: hub.Hub) -> health.Probe:
    async def check() -> admin.HealthCheck:
        """A fault of the mesh is a warning: operators need this engine to mend it."""
        if kept.fault is not None:
            return admin.HealthCheck(name="mesh", status="warning", detail=kept.fault)
        name = kept.interface
        detail = f"Interface {name}." if name else "Not up here: another engine has it, or soon."
        return admin.HealthCheck(name="mesh", status="ok", detail=detail)

    return check


def endpoint(given: orders.Orders, *, group: groups.MeshGroup) -> mesh.Endpoint:
    """Where nodes send to: what the settings say, else the first name that others can use."""
    if group.endpoint is not None:
        return mesh.parse_endpoint_or_host(group.endpoint, port=group.port)
    names = addresses.from_elsewhere(given.gateway_names or given.enrollment_names)
    return mesh.parse_endpoint_or_host(names[0], port=group.port)


def _wanted(found: founding.Mesh, *, group: groups.MeshGroup, owner: str) -> config.Wanted:
    return config.Wanted(
        name=group.interface,
        owner=owner,
        private_key=found.private_key,
        listen_port=group.port,
        address=config.interface(found.platform_address, network=found.network),
        mtu=found.mtu,
    )


def _require_means() -> None:
    lacking = programs.lacking(status=pathlib.Path("/proc/self/status"))
    if lacking is not None:
        raise failures.CannotStart(
            f"The mesh is on (--mesh or mesh.enabled), and this process cannot make a network "
            f"interface: {lacking} Mend that, or leave the mesh off.",
            exit_code=problems.Exit.NEEDS_OPERATOR,
        )
