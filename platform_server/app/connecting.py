"""Builds the parts through which nodes stay connected: the gateway, and orders on their way.

The gateway lives in the engine's process, since every question on a session needs the node's row
and a trust key (docs/adr/0018). Without its port, or with dispatch off, there is none; orders then
go to Agents that listen. Not for: the port's key and certificate (certificates), taking machines
in (enrolling).
"""

import dataclasses
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from platform_server.app import certificates, dispatching, meshing, orders
from platform_server.endpoints import routes
from platform_server.gateway import gateway, questions, rules
from platform_server.nodes import asking, configured, roster
from platform_server.settings import groups
from platform_server.store import contract
from platform_server.trust import authority
from runtime_kit import clock as clock_kit
from runtime_kit import supervise
from wire_protocol import ids, session

_LOG = logging.getLogger(__name__)
_LISTENS_SECONDS: Final = 3.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Connecting:
    """What the engine serves and runs for nodes that are connected."""

    gateway: gateway.Gateway | None
    operator_routes: Sequence[routes.Route]
    tasks: Mapping[str, supervise.Work]
    given: Callable[[ids.NodeId], None]


async def build(
    given: orders.Orders,
    *,
    settings: groups.Settings,
    store: contract.Store,
    trust: authority.Authority | None,
    operators: configured.ConfiguredNodes,
    asker: asking.Asker | None,
    kept: certificates.Certificates,
    engine_id: str,
    clock: clock_kit.Clock,
    mesh: meshing.Meshing,
) -> Connecting:
    """Builds them; raises `StoreError`."""
    dispatched = dispatching.build(
        settings=settings, store=store, trust=trust, operators=operators, asker=asker, clock=clock
    )
    if trust is None or asker is None or not given.gateway_fds:
        if trust is not None:
            await _warn_of_stranded(store)
        return Connecting(
            gateway=None,
            operator_routes=dispatched.operator_routes,
            tasks=dispatched.tasks,
            given=dispatched.given,
        )
    gate = gateway.Gateway(
        store,
        trust=trust,
        operators=operators,
        given=_rules(settings, engine_id=engine_id),
        clock=clock,
        chance=random.SystemRandom(),
        listens=_listens(store, asker=asker),
        lack=mesh.lack,
    )
    mesh.on_up.append(gate.ask_health)
    further = dict(mesh.further)
    await gate.prepare()
    kept.serve_gateway_with(gate.serve_with)
    if dispatched.deliverer is not None:
        dispatched.deliverer.find = gate.sessions.find
        gate.on_open.append(dispatched.deliverer.session_opened)
        further[session.Ask.RESULT] = dispatched.deliverer.take_result
    gate.further = further
    return Connecting(
        gateway=gate,
        operator_routes=dispatched.operator_routes,
        tasks={**dispatched.tasks, **gate.tasks},
        given=dispatched.given,
    )


def _rules(settings: groups.Settings, *, engine_id: str) -> rules.Rules:
    group = settings.gateway
    return rules.Rules(
        engine_id=engine_id,
        environment=settings.platform.environment,
        heartbeat_seconds=group.heartbeat_seconds,
        certificate_days=settings.agents.certificate_days,
        sessions=group.sessions,
        handshakes=group.handshakes,
        handshakes_per_address=group.handshakes_per_address,
    )


def _listens(store: contract.Store, *, asker: asking.Asker) -> questions.Listens:
    async def listens(node_id: ids.NodeId) -> bool:
        """Whether the node answers at its address as itself."""
        entry = await store.read(lambda tx: roster.find(tx, node_id=node_id))
        if entry is None:
            return False
        try:
            heard = await asker.ask(entry.target, timeout_s=_LISTENS_SECONDS)
        except asking.NoAnswer:
            return False
        return heard.is_from(node_id)

    return listens


async def _warn_of_stranded(store: contract.Store) -> None:
    """Nodes that dial out have nowhere to go while there is no gateway: somebody should know."""
    row = await store.read(
        lambda tx: tx.fetch_one(
            "SELECT count(*) AS number FROM nodes WHERE url IS NULL AND state <> 'removed'"
        )
    )
    if row is not None and row["number"]:
        _LOG.warning(
            "This Platform opens no gateway, so nodes that dial out cannot reach it; start it with "
            "--gateway-port",
            extra={"nodes": row["number"]},
        )
