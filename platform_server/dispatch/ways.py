"""How an order gets to a node: over its session, or to the port on which its Agent listens.

Both give the same answer (see `wire_protocol.orders`) and fail in the same two ways, so delivering
does not know which it was. A way is found anew for each order.
"""

import dataclasses
import http
from collections.abc import Callable
from typing import Final, Protocol

from platform_server.nodes import asking
from runtime_kit.mux import link as links
from wire_protocol import ids, orders, session

SECONDS: Final = 10.0
"""The Agent writes the order to its disk and answers: milliseconds; a busy machine, seconds."""

_PASSING: Final = frozenset({session.Refusal.NOT_NOW.value, "busy", "too-slow", "cancelled"})


class NotNow(Exception):
    """The node did not take the order now: it may at another time."""


class Refused(Exception):
    """The Agent will never take this order; the message is its own."""


class Way(Protocol):
    """Hands an order over."""

    async def hand(self, order: bytes) -> bytes:
        """The Agent's answer; raises `NotNow` and `Refused`."""
        ...


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OverSession:
    """The session that this engine holds."""

    link: links.Link

    async def hand(self, order: bytes) -> bytes:
        """Asks over the link."""
        try:
            return await self.link.ask(
                session.Ask.ORDER, order, timeout_s=SECONDS, max_bytes=orders.MAX_BYTES
            )
        except links.Refused as fault:
            if fault.code in _PASSING:
                raise NotNow(f"{fault.detail or fault.code}") from fault
            raise Refused(fault.detail or fault.code) from fault
        except (links.Silent, links.Closed, links.AnswerTooLong) as fault:
            raise NotNow(str(fault)) from fault


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ToPort:
    """The port of an Agent that listens."""

    asker: asking.Asker
    target: asking.Target

    async def hand(self, order: bytes) -> bytes:
        """Posts the order."""
        question = asking.Question(
            method="POST", path=orders.PATH, body=order, most_bytes=orders.MAX_BYTES
        )
        try:
            said = await self.asker.exchange(self.target, question=question, timeout_s=SECONDS)
        except asking.NoAnswer as fault:
            raise NotNow(str(fault)) from fault
        if said.status == http.HTTPStatus.OK:
            return said.body
        if said.status == http.HTTPStatus.NOT_FOUND:
            raise Refused("The Agent takes no orders: update Enlist on the machine.")
        code, detail = orders.parse_refusal(said.body)
        if said.status == http.HTTPStatus.CONFLICT and code not in _PASSING:
            raise Refused(detail or code)
        raise NotNow(detail or f"The Agent answered with status {said.status}.")


Find = Callable[[ids.NodeId], links.Link | None]
"""The session of a node, where this engine holds it."""


def no_sessions(node_id: ids.NodeId) -> links.Link | None:  # noqa: ARG001 - the shape of `Find`
    """For an engine without a gateway."""
    return None
