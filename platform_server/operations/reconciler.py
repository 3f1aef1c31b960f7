"""Carries operations on, in every engine, until each has ended: take one, do one thing, let go.

Nothing of an operation lives in an engine: a killed one is followed by any other, or by its own
next start, as soon as its lease has ended. What fails and may pass is tried again with full jitter,
a bounded number of times in a row. Signals make it quick and may be lost; each engine looks by
itself as well.

Known limit: at most `MOST_DUE` open operations are looked at in one round.
"""

import asyncio
import contextlib
import datetime
import logging
import random
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Final

from platform_server.operations import holding, kinds, records, states
from platform_server.store import contract
from runtime_kit import clock as clock_kit
from runtime_kit import crash_points, retry
from wire_protocol import problems

_LOG = logging.getLogger(__name__)
_Work = Callable[[holding.Held], Awaitable[None]]
_FAULT: Final = "A fault of ours; the Platform's log says more."
CHANNEL: Final = "operations"
_CHANGED: Final = "changed"  # which one says nothing: what its end woke is looked at as well
IDLE_SECONDS: Final = 5.0  # with nothing open
BUSY_SECONDS: Final = 1.0
MOST_DUE: Final = 500
MOST_AT_ONCE: Final = 16
RENEW_SECONDS: Final = holding.TTL_SECONDS / 3
TRIES: Final = retry.Schedule(first_seconds=2.0, cap_seconds=60.0, tries=8)

CLAIMED = crash_points.declare(
    "operation.claimed", story="an engine holds an operation and has done nothing yet"
)
ADVANCED = crash_points.declare(
    "operation.advanced", story="a step of an operation is stored, the operation is still held"
)
RELEASED = crash_points.declare("operation.released", story="an operation was let go")


class Reconciler:
    """One engine's part. Used from its event loop."""

    def __init__(
        self,
        store: contract.Store,
        *,
        known: Iterable[kinds.Kind],
        clock: clock_kit.Clock,
        chance: random.Random,
        tries: retry.Schedule = TRIES,
    ) -> None:
        self._store = store
        self._kinds = {kind.name: kind for kind in known}
        self._clock = clock
        self._chance = chance
        self._tries = tries
        self._holder = secrets.token_hex(8)  # of this run: a restarted engine is another holder
        self._not_before: dict[str, float] = {}
        self._at_work: dict[str, asyncio.Task[None]] = {}
        self._look_now = asyncio.Event()
        self._unknown: set[str] = set()

    def changed(self) -> None:
        """Something was stored here that concerns operations: look now, and let the others."""
        self._look_now.set()
        self._store.signal(CHANNEL, _CHANGED)

    async def run(self) -> None:
        """Carries on for ever. For a supervised task."""
        cancel = self._store.listen(CHANNEL, self._heard)
        try:
            while True:
                self._look_now.clear()
                seconds = IDLE_SECONDS
                try:
                    if await self._look():
                        seconds = BUSY_SECONDS
                except contract.StoreError as fault:
                    _LOG.warning("Operations cannot be looked at", extra={"reason": str(fault)})
                await self._pause(seconds)
        finally:
            cancel()
            tasks = list(self._at_work.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def round(self) -> None:
        """One look, and all that it began to its end; raises `StoreError` where it cannot look."""
        await self._look()
        await asyncio.gather(*self._at_work.values())

    # Inside.

    def _heard(self, _payload: str) -> None:
        self._not_before.clear()
        self._look_now.set()

    async def _pause(self, seconds: float) -> None:
        sleeping = asyncio.ensure_future(self._clock.sleep(seconds))
        looking = asyncio.ensure_future(self._look_now.wait())
        try:
            await asyncio.wait({sleeping, looking}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sleeping, looking):
                task.cancel()
            await asyncio.gather(sleeping, looking, return_exceptions=True)

    async def _look(self) -> bool:
        """Begins work on what is due; says whether anything is open that is worth another look."""
        now = self._clock.now()
        due = await self._store.read(lambda tx: records.list_due(tx, now=now, limit=MOST_DUE))
        self._not_before = {
            one.operation_id: self._not_before[one.operation_id]
            for one in due
            if one.operation_id in self._not_before
        }
        for operation in due:
            if len(self._at_work) >= MOST_AT_ONCE:
                break
            if self._is_for_now(operation):
                self._at_work[operation.operation_id] = asyncio.create_task(
                    self._serve(operation), name=f"operation-{operation.operation_id}"
                )
        return bool(due)

    def _is_for_now(self, operation: records.Operation) -> bool:
        if operation.operation_id in self._at_work:
            return False
        if operation.kind not in self._kinds:
            if operation.operation_id not in self._unknown:
                self._unknown.add(operation.operation_id)
                _LOG.warning("An operation of a kind unknown here waits for another engine")
            return False
        return self._clock.monotonic() >= self._not_before.get(operation.operation_id, 0.0)

    async def _serve(self, operation: records.Operation) -> None:
        operation_id = operation.operation_id
        kind = self._kinds[operation.kind]
        try:
            while True:
                found = await self._found(operation, kind=kind)
                if isinstance(found, kinds.Wait):
                    self._not_before[operation_id] = self._clock.monotonic() + found.seconds
                    return
                work = _do_in_vain if found is None else kind.advance
                if not await self._advance(operation_id, kind=kind, work=work):
                    return
        except contract.StoreError as fault:
            _LOG.warning("An operation waits", extra=_about(operation, reason=str(fault)))
        except holding.LeaseLost as fault:
            _LOG.warning("An operation was taken over", extra=_about(operation, reason=str(fault)))
        except Exception:  # noqa: BLE001 - one operation's fault is not to end all others
            _LOG.exception("An operation met a fault of ours", extra=_about(operation))
            self._not_before[operation_id] = self._clock.monotonic() + RENEW_SECONDS
        finally:
            if len(self._at_work) >= MOST_AT_ONCE:
                self._look_now.set()  # others waited for this place
            self._at_work.pop(operation_id, None)

    async def _found(self, operation: records.Operation, *, kind: kinds.Kind) -> kinds.Found | None:
        """What there is to do now; None where a fault of ours hides it."""

        async def look(tx: contract.Tx) -> kinds.Found:
            present = await records.find(tx, operation_id=operation.operation_id)
            if present is None or not present.is_open:
                return kinds.Wait(seconds=kinds.ONCE_WOKEN)
            return await kind.look(tx, operation=present, now=self._clock.now())

        try:
            return await self._store.read(look)
        except contract.StoreError:
            raise
        except Exception:  # noqa: BLE001 - tried again and bounded as a fault of the work is
            _LOG.exception("An operation met a fault of ours", extra=_about(operation))
            return None

    async def _advance(self, operation_id: str, *, kind: kinds.Kind, work: _Work) -> bool:
        """Takes it, does one thing, lets it go; says whether there may be more to do at once."""
        now = self._clock.now()
        held = await self._store.transact(
            lambda tx: holding.claim(tx, operation_id=operation_id, holder=self._holder, now=now)
        )
        if held is None:
            self._not_before[operation_id] = self._clock.monotonic() + RENEW_SECONDS
            return False
        crash_points.reach(CLAIMED)
        wait: float | None = None
        reason = _FAULT
        try:
            async with self._renewing(held):
                await work(held)
        except kinds.TryLater as fault:
            reason = str(fault)
            wait = await self._again(held, kind=kind, fault=fault)
        except kinds.Stop as fault:
            await kind.fail(held, holding.Failure(reason=str(fault), kind=fault.kind))
        except (contract.StoreError, holding.LeaseLost):
            raise
        except Exception:  # noqa: BLE001 - tried again and bounded as any other failure
            _LOG.exception("An operation met a fault of ours", extra=_about(held.operation))
            wait = await self._again(held, kind=kind, fault=kinds.TryLater(_FAULT))
        crash_points.reach(ADVANCED)
        await self._let_go(held, wait=wait, reason=reason)
        crash_points.reach(RELEASED)
        self._not_before.clear()  # its end may be what others waited for
        self._look_now.set()
        self._store.signal(CHANNEL, _CHANGED)
        return wait is None

    async def _again(
        self, held: holding.Held, *, kind: kinds.Kind, fault: kinds.TryLater
    ) -> float | None:
        """How long to wait after one more failure in a row; None where that was the last.

        What is being undone cannot fail any more: it is tried for ever, at the longest pace.
        """
        operation, waits = held.operation, list(self._tries.waits(chance=self._chance))
        may_fail = states.find_after(operation.state, states.Event.FAIL) is not None
        if operation.tries >= len(waits) and may_fail and not fault.patient:
            sentence = f"{fault} Tried {operation.tries + 1} times."
            failure = holding.Failure(reason=sentence, kind=problems.Kind.TRANSIENT)
            await kind.fail(held, failure)
            return None
        wait = max(waits[min(operation.tries, len(waits) - 1)], fault.seconds)
        _LOG.warning(
            "An operation is tried again",
            extra=_about(operation, reason=str(fault), next_try_seconds=round(wait, 1)),
        )
        return wait

    async def _let_go(self, held: holding.Held, *, wait: float | None, reason: str) -> None:
        """After a step its row says already when it is to be looked at: now."""
        if wait is None:
            await self._store.transact(lambda tx: holding.release(tx, held=held))
        else:
            now = self._clock.now()
            until = now + datetime.timedelta(seconds=wait)
            await self._store.transact(
                lambda tx: holding.put_off(tx, held=held, until=until, reason=reason, now=now)
            )

    @contextlib.asynccontextmanager
    async def _renewing(self, held: holding.Held) -> AsyncIterator[None]:
        """Holds it for as long as the block runs; ends the block when it is lost."""
        worker = asyncio.current_task()
        lost: list[holding.LeaseLost] = []

        async def renew() -> None:
            while True:
                await self._clock.sleep(RENEW_SECONDS)
                try:
                    await self._store.transact(
                        lambda tx: holding.renew(tx, held=held, now=self._clock.now())
                    )
                except contract.StoreError as fault:
                    _LOG.warning(
                        "A lease was not renewed", extra=_about(held.operation, reason=str(fault))
                    )
                except holding.LeaseLost as fault:
                    lost.append(fault)
                    if worker is not None:
                        worker.cancel()
                    return

        renewing = asyncio.create_task(renew(), name="operation-lease")
        try:
            yield
        except asyncio.CancelledError:
            if lost and worker is not None and worker.uncancel() == 0:
                raise lost[0] from None
            raise
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)


async def _do_in_vain(_held: holding.Held) -> None:
    raise kinds.TryLater(_FAULT)


def _about(operation: records.Operation, **more: object) -> dict[str, object]:
    return {"operation": operation.operation_id, "kind": operation.kind, **more}
