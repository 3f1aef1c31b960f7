"""Serves the helper's socket: one request a connection, one change of release at a time.

What was cut off is finished first, and meanwhile no order is taken. After `staged` the other end
may write down what it was told, for ten seconds at most, before the release changes under it.
Without work, or once another release runs, it ends by itself; the socket stays the service
manager's, and the next connection starts it again.
"""

import asyncio
import contextlib
import dataclasses
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

from installer import switch
from root_helper import (
    archives,
    changing,
    connections,
    last_order,
    refusals,
    requests,
    trusted,
    verdict,
)
from root_helper import mesh as mesh_kit
from root_helper import places as places_kit
from runtime_kit import clock as clock_kit
from runtime_kit import crash_points
from wire_protocol import helper_protocol as helper
from wire_protocol import helper_state, statements, strict_json

Done = TypeVar("Done")
LOGGER = logging.getLogger(__name__)
IDLE_SECONDS = 30.0
CLOSE_SECONDS = 10.0
TURN_SECONDS = 3.0
_SEND_SECONDS = 5.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long what is waited for; a test shortens them."""

    idle_seconds: float = IDLE_SECONDS
    close_seconds: float = CLOSE_SECONDS
    turn_seconds: float = TURN_SECONDS
    read_seconds: float = requests.READ_SECONDS


class Service:
    """The helper of one machine."""

    def __init__(
        self,
        *,
        places: places_kit.Places,
        change: changing.Changing,
        mesh: mesh_kit.Mesh,
        clock: clock_kit.Clock,
        peers: frozenset[int],
        limits: Limits,
    ) -> None:
        self._places = places
        self._change = change
        self._mesh = mesh
        self._clock = clock
        self._limits = limits
        self._changing = asyncio.Lock()
        self._finishing = asyncio.Event()  # what was cut off is being looked at
        self._mesh_turn = asyncio.Lock()
        self._trust_turn = asyncio.Lock()
        self._connections = connections.Connections(peers=peers, clock=clock)

    async def run(self, listener: socket.socket) -> None:
        """Serves until there has been nothing to do for a while.

        Raises `CutOff` where a change of release did not come to its end.
        """
        fault: changing.CutOff | None = None
        try:
            await self._run(listener)
        except* changing.CutOff as several:
            fault = _first(several)
        if fault is not None:
            raise fault

    async def _run(self, listener: socket.socket) -> None:
        listener.setblocking(False)  # noqa: FBT003 - the library's own signature
        async with asyncio.TaskGroup() as group:
            work: set[asyncio.Task[None]] = {group.create_task(self._finish(), name="finish")}
            await self._finishing.wait()
            while not self._is_outdated():
                accepted = await self._connections.accept(
                    listener, seconds=self._limits.idle_seconds
                )
                work = {task for task in work if not task.done()}
                if accepted is None:
                    if not work:
                        return
                elif (uid := self._connections.let_in(accepted)) is not None:
                    work.add(group.create_task(self._serve(accepted, uid=uid), name="request"))

    def _is_outdated(self) -> bool:
        """Whether another release runs by now: its own helper then takes the next request."""
        if self._changing.locked():
            return False
        layout = self._places.layout
        return changing.running_release(layout) != layout.current.resolve()

    async def _finish(self) -> None:
        try:
            async with self._changing:
                self._finishing.set()
                outcome = await _whole(self._change.finish)
        except places_kit.Damaged as error:
            LOGGER.error("No orders are taken: %s", error)  # noqa: TRY400 - a file, no fault of ours
            return
        if outcome is not None:
            LOGGER.warning(
                "A change of release that was cut off has ended: %s, %s runs. %s",
                outcome.end,
                outcome.release,
                outcome.reason,
            )

    async def _serve(self, connection: socket.socket, *, uid: int) -> None:
        try:
            with connection:
                await self._answer(connection)
        except (OSError, TimeoutError) as error:
            LOGGER.info("A request broke off: %s", error)
        finally:
            self._connections.ended(uid)

    async def _answer(self, connection: socket.socket) -> None:
        try:
            request = await asyncio.to_thread(
                requests.read, connection, seconds=self._limits.read_seconds
            )
        except refusals.Refused as refused:
            await _refuse(connection, refused)
            return
        try:
            if request.verb in (helper.Verb.UPDATE, helper.Verb.ROLL_BACK):
                await self._order(connection, request)
            else:
                await _send(connection, await self._do(request))
        except refusals.Refused as refused:
            await _refuse(connection, refused)
        finally:
            request.close()

    async def _do(self, request: requests.Request) -> bytes:
        """The verbs that need no order."""
        if request.verb is helper.Verb.TRUST:
            async with self._trust_turn:
                await asyncio.to_thread(self._take_trust, request)
            return helper.write_done("held")
        if request.verb is helper.Verb.STATUS:
            return await self._status()
        known = await asyncio.to_thread(trusted.get, self._places)
        async with self._mesh_turn:
            if request.verb is helper.Verb.MESH_UP:
                try:
                    asked = helper_state.parse_mesh_up(request.fields)
                except strict_json.Malformed as error:
                    raise refusals.Refused(refusals.Code.MALFORMED, str(error)) from error
                await self._mesh.up(asked, known=known)
                return helper.write_done("up")
            await self._mesh.down(known=known)
            return helper.write_done("down")

    def _take_trust(self, request: requests.Request) -> None:
        if request.descriptor is None:
            raise refusals.Refused(refusals.Code.MALFORMED, "The trust answer is passed as a file.")
        try:
            raw = os.pread(request.descriptor, statements.MAX_ANSWER_BYTES + 1, 0)
            answer = statements.parse_answer(raw)
        except (OSError, strict_json.Malformed) as error:
            raise refusals.Refused(refusals.Code.MALFORMED, str(error)) from error
        try:
            trusted.advance(self._places, answer, now=self._clock.now())
        except OSError as error:
            raise refusals.Refused(
                refusals.Code.FAILED, f"The trust set cannot be written: {error.strerror}."
            ) from error

    async def _status(self) -> bytes:
        try:
            known = trusted.find(self._places)
            outcome = last_order.read_outcome(self._places)
        except places_kit.Damaged as error:
            raise refusals.Refused(refusals.Code.FAILED, str(error)) from error
        return helper_state.write_status(
            helper_state.Status(
                release=switch.current(self._places.layout) or "",
                trust=None if known is None else known.held.statement.number,
                outcome=outcome,
                mesh=None if known is None else await self._mesh.look(known=known),
            )
        )

    async def _order(self, connection: socket.socket, request: requests.Request) -> None:
        async with self._turn():
            with self._change.alone():
                taken, to = await asyncio.to_thread(self._stage, request)
                crash_points.reach(changing.STAGED)
                await _send(connection, helper.write_staged(to))
                await self._closed(connection)
                outcome = await _whole(lambda: self._change.carry_out(taken, to=to))
        LOGGER.info(
            "Order %s: %s, %s runs. %s", taken.number, outcome.end, outcome.release, outcome.reason
        )

    @contextlib.asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """One order at a time; the look at what was cut off takes a moment at each start."""
        try:
            async with asyncio.timeout(self._limits.turn_seconds):
                await self._changing.acquire()
        except TimeoutError:
            raise refusals.Refused(
                refusals.Code.BUSY, "A change of release is under way on this machine."
            ) from None
        try:
            yield
        finally:
            self._changing.release()

    def _stage(self, request: requests.Request) -> tuple[last_order.LastOrder, str]:
        """Verifies all, writes the order down and has the release stand beside the others."""
        try:
            signed = helper.parse_order(request.fields)
        except strict_json.Malformed as error:
            raise refusals.Refused(refusals.Code.MALFORMED, str(error)) from error
        last = self._change.last()
        if last is not None and last.stage is last_order.Stage.BEGUN:
            raise refusals.Refused(refusals.Code.BUSY, "A change of release is not finished yet.")
        order = verdict.judge(
            signed,
            verb=request.verb,
            known=trusted.get(self._places),
            last=last,
            now=self._clock.now(),
        )
        LOGGER.info("Order %s: %s", order.number, order.kind)
        sha256 = verdict.digest(signed)
        if request.verb is helper.Verb.ROLL_BACK:
            verdict.require_roll_back(order)
            to = self._change.release_to_go_back_to()
            return self._change.take(order.number, sha256=sha256), to
        wanted = verdict.update_of(order, current=switch.current(self._places.layout))
        if request.descriptor is None:
            raise refusals.Refused(refusals.Code.NO_ARCHIVE, "No archive was passed.")
        taken = self._change.take(order.number, sha256=sha256)
        to = archives.stage(request.descriptor, wanted=wanted, places=self._places)
        self._change.require_start(to)
        return taken, to

    async def _closed(self, connection: socket.socket) -> None:
        """Until the other end has closed, or long enough."""
        connection.setblocking(False)  # noqa: FBT003 - the library's own signature
        try:
            async with asyncio.timeout(self._limits.close_seconds):
                await asyncio.get_running_loop().sock_recv(connection, 1)
        except (OSError, TimeoutError):
            return


async def _whole(work: Callable[[], Done]) -> Done:
    """Blocking work in a thread, awaited to its end even where all else here ends meanwhile.

    A change of release is never left by the fault of another request.
    """
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait({running})
        raise


def _first(several: BaseExceptionGroup[changing.CutOff]) -> changing.CutOff:
    for one in several.exceptions:
        return _first(one) if isinstance(one, BaseExceptionGroup) else one
    raise ValueError("An exception group is never empty.")


async def _refuse(connection: socket.socket, refused: refusals.Refused) -> None:
    LOGGER.warning("Refused (%s): %s", refused.code.value, refused)
    await _send(connection, helper.write_refusal(refused.code.value, str(refused)))


async def _send(connection: socket.socket, line: bytes) -> None:
    connection.setblocking(False)  # noqa: FBT003 - the library's own signature
    async with asyncio.timeout(_SEND_SECONDS):
        await asyncio.get_running_loop().sock_sendall(connection, line)
