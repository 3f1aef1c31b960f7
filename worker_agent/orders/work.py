"""Carries taken orders out, one after the other, and tells the Platform what became of them.

At most once: the step into the work is written down before it, so an order that was cut short is
never begun again; it is answered for as failed, its effect unknown, and whoever gave it decides
(docs/adr). One that waited past its end is not begun. What is told over the session is told until
the Platform has stored it; an Agent that listens is asked.

What only root can do is handed on: whoever does it verifies the order by itself, and does what ends
this Agent only after the result stands on the disk.
"""

import asyncio
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from runtime_kit import clock as clock_kit
from runtime_kit import crash_points
from runtime_kit import failures as network
from runtime_kit.mux import link as links
from wire_protocol import ids, session
from wire_protocol import orders as wire
from worker_agent.orders import journal, taking
from worker_agent.settings import failures, paths

LOGGER = logging.getLogger(__name__)
LIMIT_SECONDS = 600.0
HANDED_ON_LIMIT_SECONDS = 1800.0  # an archive of 60 MB over 300 kbit/s
AGAIN_SECONDS = 5.0  # after the disk or the Platform could not take what it was given

BEGUN = crash_points.declare("orders.begun", story="The disk says that an order is being done.")
CARRIED_OUT = crash_points.declare(
    "orders.carried-out", story="An order was carried out; the disk does not say so yet."
)
RESULT_STORED = crash_points.declare(
    "orders.result-stored", story="An order's result is on the disk; the Platform has not heard it."
)

Carry = Callable[[Mapping[str, Any]], Awaitable[str]]
"""Carries out one order by its content; returns a sentence, or raises a `Failure`."""

Asker = Callable[[str, bytes], Awaitable[bytes]]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Handed:
    """What somebody else now does. `let_go` is called once the result is on the disk."""

    detail: str
    let_go: Callable[[], None]


HandOn = Callable[[journal.Entry], Awaitable[Handed]]
"""Hands an order on, with its exact bytes; raises a `Failure`."""

NOTHING_HANDED: Mapping[str, HandOn] = {}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Ended:
    stage: journal.Stage
    detail: str
    let_go: Callable[[], None] | None = None


class Work:
    """The orders of one node."""

    def __init__(
        self,
        where: paths.Paths,
        *,
        node_id: ids.NodeId,
        kinds: Mapping[str, Carry],
        handed_on: Mapping[str, HandOn] = NOTHING_HANDED,
        trusted: taking.Trust,
        clock: clock_kit.Clock,
    ) -> None:
        self._book = taking.Book(where)
        self._kinds = kinds
        self._handed_on = handed_on
        self._clock = clock
        self._ask: Asker | None = None
        self._to_do = asyncio.Event()
        self._to_tell = asyncio.Event()
        self._taking = taking.Taking(
            self._book,
            node_id=node_id,
            known=kinds.keys(),
            handed_on=handed_on.keys(),
            trusted=trusted,
            clock=clock,
            on_taken=self._to_do.set,
        )

    async def take(self, order: bytes) -> bytes:
        """Takes a signed order; raises `links.Refusal`. See `taking.Taking.take`."""
        return self._taking.take(order)

    def session_opened(self, ask: Asker) -> None:
        """Results can be told from now on."""
        self._ask = ask
        self._to_tell.set()

    def session_closed(self) -> None:
        """Nothing can be told until a session opens again."""
        self._ask = None

    async def run(self) -> None:
        """Carries out and tells, for ever. For a supervised task."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._carry_out_all(), name="orders-carry-out")
            group.create_task(self._tell_all(), name="orders-tell")

    async def _carry_out_all(self) -> None:
        await self._end_interrupted()
        while True:
            self._to_do.clear()
            entry = self._book.present.first(journal.Stage.TAKEN)
            if entry is None:
                await self._to_do.wait()
            else:
                await self._carry_out(entry)

    async def _end_interrupted(self) -> None:
        while (entry := self._book.present.first(journal.Stage.BEGUN)) is not None:
            await self._end(
                entry,
                stage=journal.Stage.FAILED,
                detail=wire.INTERRUPTED,
            )

    async def _carry_out(self, entry: journal.Entry) -> None:
        if entry.expires_at <= self._clock.now():
            await self._end(
                entry, stage=journal.Stage.FAILED, detail="Its time was over before its turn came."
            )
            return
        begun = dataclasses.replace(entry, stage=journal.Stage.BEGUN)
        await self._write(begun)
        crash_points.reach(BEGUN)
        ended = await self._result_of(entry)
        crash_points.reach(CARRIED_OUT)
        try:
            await self._end(begun, stage=ended.stage, detail=ended.detail)
            crash_points.reach(RESULT_STORED)
        finally:
            if ended.let_go is not None:
                ended.let_go()

    async def _result_of(self, entry: journal.Entry) -> _Ended:
        is_handed_on = entry.kind in self._handed_on
        limit = HANDED_ON_LIMIT_SECONDS if is_handed_on else LIMIT_SECONDS
        try:
            async with asyncio.timeout(limit):
                return await self._carried(entry)
        except failures.Failure as failure:
            return _Ended(stage=journal.Stage.FAILED, detail=str(failure))
        except TimeoutError:
            return _Ended(
                stage=journal.Stage.FAILED, detail=f"It did not end within {limit:.0f} s."
            )
        except Exception:
            LOGGER.exception("An order met a fault of ours", extra={"kind": entry.kind})
            return _Ended(
                stage=journal.Stage.FAILED,
                detail="A fault of ours; the Agent's log on the machine says more.",
            )

    async def _carried(self, entry: journal.Entry) -> _Ended:
        hand_on, carry = self._handed_on.get(entry.kind), self._kinds.get(entry.kind)
        if hand_on is not None:
            handed = await hand_on(entry)
            return _Ended(stage=journal.Stage.DONE, detail=handed.detail, let_go=handed.let_go)
        if carry is None:  # taken by a newer Agent, which was replaced by this one
            return _Ended(
                stage=journal.Stage.FAILED,
                detail=f"This Agent knows no order of the kind {entry.kind}.",
            )
        return _Ended(stage=journal.Stage.DONE, detail=await carry(entry.content))

    async def _end(self, entry: journal.Entry, *, stage: journal.Stage, detail: str) -> None:
        await self._write(dataclasses.replace(entry, stage=stage, detail=detail))
        LOGGER.info(
            "Order ended",
            extra={"kind": entry.kind, "number": list(entry.number), "stage": stage.value},
        )
        self._to_tell.set()

    async def _write(self, entry: journal.Entry) -> None:
        """Writes the entry, as often as the disk needs to take it."""
        while True:
            try:
                self._book.write(self._book.present.changed(entry))
            except OSError as error:
                LOGGER.warning("An order waits for the disk", extra={"reason": str(error)})
            else:
                return
            await self._clock.sleep(AGAIN_SECONDS)

    async def _tell_all(self) -> None:
        while True:
            self._to_tell.clear()
            entry, ask = self._book.present.untold(), self._ask
            result = None if entry is None else entry.result
            if entry is None or result is None or ask is None:
                await self._to_tell.wait()
            elif await self._is_told(result, ask=ask):
                present = self._book.present.find(entry.number)
                if present is not None:
                    await self._write(dataclasses.replace(present, is_told=True))
            else:
                await self._clock.sleep(AGAIN_SECONDS)

    async def _is_told(self, result: wire.Result, *, ask: Asker) -> bool:
        try:
            await ask(session.Ask.RESULT, result.to_bytes())
        except links.Refused as refusal:
            if refusal.code == session.Refusal.INVALID:
                LOGGER.warning("A result was not understood", extra={"reason": str(refusal)})
                return True
            return False
        except network.NetworkFailure:
            return False
        return True
