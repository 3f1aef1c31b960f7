"""Judges an order that came in, writes it down, and answers for it.

The verdict is `wire_protocol.orders.judge` alone, by this machine's clock and the trust keys it
holds; whoever speaks over the session is not believed by that. An order that was taken before is
answered for again, with its result once there is one: an answer may have been lost.
"""

import logging
from collections.abc import Callable, Collection
from typing import Protocol

from runtime_kit import clock as clock_kit
from runtime_kit import crash_points
from runtime_kit.mux import link as links
from wire_protocol import ids, orders, product, session, strict_json, trust
from worker_agent.orders import journal
from worker_agent.settings import documents, paths

LOGGER = logging.getLogger(__name__)

TAKEN = crash_points.declare(
    "orders.taken", story="An order is on the disk; the Platform has no answer yet."
)


class Trust(Protocol):
    """Whoever keeps the trust set."""

    @property
    def held(self) -> trust.Held:
        """The set held now."""
        ...

    def unknown_key(self) -> None:
        """Something is signed by no key of it: the set may be old. Returns at once."""
        ...


class Book:
    """The journal of a running Agent, in memory and on the disk; the same in both."""

    def __init__(self, where: paths.Paths) -> None:
        self._path = where.orders
        self._journal: journal.Journal | None = None
        try:
            self._journal = journal.read(self._path)
        except documents.Damaged as error:
            self.fault = (
                f"{error} To take orders again, of which one that was at hand may then be carried "
                f"out a second time: rm {self._path}"
            )
            LOGGER.error("No orders are taken", extra={"reason": self.fault})  # noqa: TRY400 - a file

    fault: str = ""
    """Why no orders can be taken; the Agent runs all the same."""

    @property
    def present(self) -> journal.Journal:
        """What is written; an empty one where the file is damaged."""
        return self._journal or journal.Journal()

    def write(self, changed: journal.Journal) -> None:
        """Writes, and only then goes on with it; raises `OSError`."""
        journal.write(self._path, changed)
        self._journal = changed


class Taking:
    """Takes orders for one node."""

    def __init__(
        self,
        book: Book,
        *,
        node_id: ids.NodeId,
        known: Collection[str],
        handed_on: Collection[str],
        trusted: Trust,
        clock: clock_kit.Clock,
        on_taken: Callable[[], None],
    ) -> None:
        self._book = book
        self._node_id = node_id
        self._known = known
        self._handed_on = handed_on
        self._trusted = trusted
        self._clock = clock
        self._on_taken = on_taken

    def take(self, raw: bytes) -> bytes:
        """Writes the order down; the answer is its result, empty until there is one.

        Raises `links.Refusal`, and then nothing was taken.
        """
        if self._book.fault:
            raise _refusal(session.Refusal.INVALID, self._book.fault)
        try:
            signed = orders.parse_signed(raw)
            found = self._find(signed)
            if found is not None:
                result = found.result
                return b"" if result is None else result.to_bytes()
            order = self._judge(signed)
        except strict_json.Malformed as error:
            raise _refusal(session.Refusal.INVALID, f"The order cannot be read: {error}") from error
        except orders.NotSigned as error:
            self._trusted.unknown_key()
            raise _refusal(session.Refusal.NOT_NOW, str(error)) from error
        except orders.Refused as error:
            raise _refusal(session.Refusal.INVALID, str(error)) from error
        self._write(order, signed=signed)
        crash_points.reach(TAKEN)
        self._on_taken()
        return b""

    def _find(self, signed: orders.SignedOrder) -> journal.Entry | None:
        """The same order, if it was taken before."""
        held = self._trusted.held.statement
        order = orders.read_signed(signed, trust_keys=held.trust_keys, now=self._clock.now())
        if (order.platform_id, order.node_id) != (held.platform_id, self._node_id):
            return None
        return self._book.present.find(order.number)

    def _judge(self, signed: orders.SignedOrder) -> orders.Order:
        """Of an epoch before the Platform's present one nothing is taken: a backup was restored."""
        held = self._trusted.held.statement
        order = orders.judge(
            signed,
            platform_id=held.platform_id,
            node_id=self._node_id,
            trust_keys=held.trust_keys,
            last=max(self._book.present.last, (held.epoch, 0)),
            now=self._clock.now(),
        )
        if order.kind not in self._known and order.kind not in self._handed_on:
            raise _refusal(
                session.Refusal.UNKNOWN,
                f"This Agent ({product.VERSION}) knows no order of the kind {order.kind}: update "
                "Enlist on the machine.",
            )
        if self._book.present.waiting >= journal.MOST_WAITING:
            raise _refusal(session.Refusal.NOT_NOW, "Too many orders wait on this machine.")
        return order

    def _write(self, order: orders.Order, *, signed: orders.SignedOrder) -> None:
        entry = journal.Entry(
            number=order.number,
            kind=order.kind,
            content=order.content,
            expires_at=order.expires_at,
            signed=signed if order.kind in self._handed_on else None,
        )
        try:
            self._book.write(self._book.present.taken(entry))
        except OSError as error:
            raise _refusal(
                session.Refusal.NOT_NOW,
                f"The machine cannot write the order down: {error.strerror or error}.",
            ) from error
        LOGGER.info("Order taken", extra={"kind": order.kind, "number": list(order.number)})


def _refusal(code: session.Refusal, detail: str) -> links.Refusal:
    LOGGER.warning("Order refused", extra={"code": code.value, "reason": detail})
    return links.Refusal(code.value, detail)
