"""Builds the parts that give orders to nodes: the routes, and the delivery.

With dispatch off there is no trust key to sign with: the routes are there and refuse to give.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence

from platform_server.dispatch import deliver
from platform_server.endpoints import node_orders, routes
from platform_server.nodes import asking, configured
from platform_server.settings import groups
from platform_server.store import contract
from platform_server.trust import authority
from runtime_kit import clock as clock_kit
from runtime_kit import supervise
from wire_protocol import ids, orders


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Dispatching:
    """What the engine serves and runs for orders; `deliverer` is None with dispatch off.

    `given` is to hear of each order that somebody here has stored.
    """

    operator_routes: Sequence[routes.Route]
    tasks: Mapping[str, supervise.Work]
    deliverer: deliver.Deliverer | None
    given: Callable[[ids.NodeId], None]


def build(
    *,
    settings: groups.Settings,
    store: contract.Store,
    trust: authority.Authority | None,
    operators: configured.ConfiguredNodes,
    asker: asking.Asker | None,
    clock: clock_kit.Clock,
) -> Dispatching:
    """Builds them."""
    if trust is None:
        off = node_orders.NodeOrders(operators=operators, sign=None, given=_nobody)
        return Dispatching(operator_routes=off.served(), tasks={}, deliverer=None, given=_nobody)
    deliverer = deliver.Deliverer(
        store, asker=asker, environment=settings.platform.environment, clock=clock
    )
    served = node_orders.NodeOrders(
        operators=operators,
        sign=functools.partial(trust.sign, context=orders.CONTEXT),
        given=deliverer.given,
    ).served()
    return Dispatching(
        operator_routes=served,
        tasks={"orders": deliverer.run},
        deliverer=deliverer,
        given=deliverer.given,
    )


def _nobody(node_id: ids.NodeId) -> None:
    """Nothing is stored where nothing can be signed."""
