"""Builds the parts that carry operations on: the routes, the kinds, the reconciler.

With dispatch off there is nothing to sign an order with: what is open waits, and the routes refuse
to begin more.
"""

import dataclasses
import functools
import random
from collections.abc import Callable, Mapping, Sequence

from platform_server.app import data_dir, orders
from platform_server.endpoints import operations, routes
from platform_server.nodes import configured
from platform_server.operations import batch, kinds, node_release, plan, reconciler, shelf
from platform_server.settings import groups
from platform_server.store import contract
from platform_server.trust import authority
from runtime_kit import clock as clock_kit
from runtime_kit import supervise
from wire_protocol import ids
from wire_protocol import orders as wire_orders


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Operating:
    """What the engine serves and runs for operations."""

    operator_routes: Sequence[routes.Route]
    tasks: Mapping[str, supervise.Work]
    changed: Callable[[], None]


def build(
    orders_of_host: orders.Orders,
    *,
    settings: groups.Settings,
    store: contract.Store,
    trust: authority.Authority | None,
    given: Callable[[ids.NodeId], None],
    operators: configured.ConfiguredNodes,
    more: Sequence[kinds.Kind] = (),
    clock: clock_kit.Clock,
) -> Operating:
    """Builds them. `given` hears of each order that an operation gave; `more` are further kinds."""
    archives = shelf.Shelf(
        orders_of_host.data_dir / data_dir.BUNDLES, origin=orders_of_host.bundle_url
    )
    if trust is None:
        off = operations.Operations(operators=operators, archives=archives, changed=None)
        return Operating(operator_routes=off.served(), tasks={}, changed=_nobody)
    environment = settings.platform.environment
    group = settings.operations
    means = node_release.Means(
        store=store,
        sign=functools.partial(trust.sign, context=wire_orders.CONTEXT),
        given=given,
        operators=operators,
        archives=archives,
        environment=environment,
        limits=plan.Limits(
            ready_seconds=group.ready_seconds,
            staging_seconds=group.staging_seconds,
            restart_seconds=group.restart_seconds,
            settle_seconds=group.settle_seconds,
            healthy_seconds=group.healthy_seconds,
        ),
        clock=clock,
    )
    known: list[kinds.Kind] = [
        batch.Batch(batch.UPDATE_NODES, store=store, environment=environment, clock=clock),
        node_release.NodeRelease(node_release.UPDATE, means=means),
        node_release.NodeRelease(node_release.ROLL_BACK, means=means),
        *more,
    ]
    carrying = reconciler.Reconciler(store, known=known, clock=clock, chance=random.SystemRandom())
    served = operations.Operations(
        operators=operators, archives=archives, changed=carrying.changed
    ).served()
    return Operating(
        operator_routes=served, tasks={"operations": carrying.run}, changed=carrying.changed
    )


def _nobody() -> None:
    """Where nothing is carried on nobody hears of what was stored."""
