"""Asks every node that listens, again and again, whether it is there.

One engine does it (see `leading`). Each node has its own next moment, drawn at random around the
interval, so that ten thousand do not come due together; at most so many are asked at one time. A
node becomes ready by an answer in its own name, given with trust keys in hand, and nothing else;
a few silences in a row make it unreachable, with the reason. One that has enrolled and not been
ready yet is asked more often, since somebody is waiting for it.

When this engine takes the work up at its start, every node that was ready is unreachable until it
answers: nobody has heard it since. Taken over from another engine that failed, the states stand.

Known limit: with more nodes than the places can serve in an interval, the interval stretches.
"""

import asyncio
import dataclasses
import datetime
import functools
import heapq
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeVar

from platform_server.nodes import (
    asking,
    configured,
    heartbeats,
    leading,
    liveness,
    pulses,
    renewal,
    requirement,
    roster,
    states,
)
from platform_server.store import contract, leases
from runtime_kit import clock as clock_kit
from wire_protocol import ids

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")

LEASE: Final = "probe"
TICK_SECONDS: Final = 0.25
FOLLOW_SECONDS: Final = 1.0
READ_ALL_SECONDS: Final = 300.0
SEEN_SECONDS: Final = 30.0  # how late `last_seen_at` in the store may be
SEEN_BATCH: Final = 200
EAGER_SECONDS: Final = 1.0
EAGER_FOR: Final = datetime.timedelta(minutes=15)  # as long as a slow first boot
START_SECONDS: Final = 30.0  # work taken up this soon was interrupted by this engine's start
_SPREAD_SECONDS: Final = 0.01  # after a start: a hundred nodes a second, or the interval


class Asker(Protocol):
    """Asks one node; `asking.Asker` over the network, a fake in tests."""

    async def ask(
        self, target: asking.Target, *, timeout_s: float, trusted: bool = False
    ) -> asking.Heard:
        """The answer; raises `asking.NoAnswer`."""
        ...


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often, how patiently, how many at once."""

    interval_seconds: float = 15.0
    timeout_seconds: float = 5.0
    concurrency: int = 32
    failures: int = 2


@dataclasses.dataclass(slots=True)
class _Watched:
    entry: roster.Entry
    state: states.State
    turn: int = 0  # which scheduling of this node is the valid one
    misses: int = 0
    reason: str | None = None
    being_asked: bool = False


class Prober:
    """The probe of one engine."""

    def __init__(
        self,
        store: contract.Store,
        *,
        asker: Asker,
        operators: configured.ConfiguredNodes,
        pace: Pace,
        clock: clock_kit.Clock,
        chance: random.Random,
        lack: requirement.Requirement = requirement.nothing,
        exchanger: pulses.Exchanger | None = None,
        environment: str = "dev",
    ) -> None:
        self._store = store
        self._lack = lack
        self._asker = asker
        self._operators = operators
        self._pace = pace
        self._clock = clock
        self._chance = chance
        self._watched: dict[ids.NodeId, _Watched] = {}
        self._due: list[tuple[float, int, ids.NodeId]] = []
        self._seen_event = 0
        self._environment = environment
        self._pulses = pulses.Pulses(exchanger, clock=clock)
        self._still_there: dict[ids.NodeId, liveness.Report] = {}
        self._learned: dict[str, configured.Learned] = {}
        self._learned_changed = False
        self._leads = False
        self._leading = leading.Leading(store, name=LEASE, clock=clock)
        self._started = clock.monotonic()
        self._asking: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Probes for ever. For a supervised task; ends only when cancelled."""
        follow = read_all = seen = 0.0
        try:
            while True:
                try:
                    now = self._clock.monotonic()
                    if not await self._leading.holds():
                        self._stand_down()
                    elif not self._leads:
                        await self._take_up()
                        follow, read_all, seen = now, now + READ_ALL_SECONDS, now
                    else:
                        if now >= read_all:
                            await self._read_all()
                            read_all = now + READ_ALL_SECONDS
                        if now >= follow:
                            await self._follow()
                            follow = now + FOLLOW_SECONDS
                        if now - seen >= SEEN_SECONDS:
                            await self.flush()
                            seen = now
                        self._ask_due()
                except (contract.StoreError, leases.LeaseLost) as fault:
                    _LOG.warning("The probe cannot use the store", extra={"reason": str(fault)})
                await self._clock.sleep(TICK_SECONDS)
        finally:
            self._stand_down()

    async def flush(self) -> None:
        """Writes that nodes went on answering, a batch a transaction."""
        reports, self._still_there = list(self._still_there.values()), {}
        for start in range(0, len(reports), SEEN_BATCH):
            batch = reports[start : start + SEEN_BATCH]
            await self._write(functools.partial(liveness.write_seen, reports=batch))
        for news in self._pulses.take():
            await self._write(functools.partial(heartbeats.write, news=news))
        if self._learned_changed:
            self._learned_changed = False
            learned = dict(self._learned)
            await self._write(functools.partial(configured.write_learned, learned=learned))

    async def _write(self, work: Callable[[contract.Tx], Awaitable[_T]]) -> _T:
        """One transaction of the engine that leads; raises `LeaseLost` if that is another now."""

        async def fenced(tx: contract.Tx) -> _T:
            await self._leading.fence(tx)
            return await work(tx)

        return await self._store.transact(fenced)

    def _stand_down(self) -> None:
        self._leads = False
        for task in self._asking:
            task.cancel()
        self._watched.clear()
        self._due.clear()
        self._still_there.clear()
        self._pulses.forget()

    async def _take_up(self) -> None:
        forgotten = 0
        if self._clock.monotonic() - self._started <= START_SECONDS:
            now = self._clock.now()
            forgotten = await self._write(functools.partial(liveness.forget_answers, now=now))
        await self._read_all()
        self._learned = {
            node_id: configured.Learned(
                state=states.State.UNREACHABLE.value, reason=liveness.NOT_HEARD
            )
            for node_id in self._operators.nodes
        }
        self._learned_changed = bool(self._learned)
        await self.flush()
        self._leads = True
        _LOG.info(
            "The probe begins",
            extra={"nodes": len(self._watched), "were_ready": forgotten},
        )

    async def _read_all(self) -> None:
        entries, self._seen_event = await self._store.read(
            lambda tx: roster.read_all(tx, operators=self._operators)
        )
        for node_id in self._watched.keys() - entries.keys():
            del self._watched[node_id]
        spread = min(self._pace.interval_seconds, len(entries) * _SPREAD_SECONDS)
        for entry in entries.values():
            self._watch(entry, within=spread)

    async def _follow(self) -> None:
        followed = await self._store.read(
            lambda tx: roster.follow(tx, seen=self._seen_event, operators=self._operators)
        )
        self._seen_event = followed.seen
        for node_id in followed.gone:
            self._watched.pop(node_id, None)
            self._pulses.forget(node_id)
        for entry in followed.changed:
            self._watch(entry, within=0.0)

    def _watch(self, entry: roster.Entry, *, within: float) -> None:
        node_id = entry.target.node_id
        known = self._watched.get(node_id)
        if known is not None and known.entry.target == entry.target:
            if not entry.is_configured:
                known.state = entry.state  # the store knows best: an order or an engine changed it
            return
        turn = 0 if known is None else known.turn + 1
        self._watched[node_id] = _Watched(entry=entry, state=entry.state, turn=turn)
        self._schedule(node_id, after=self._chance.uniform(0, within))

    def _schedule(self, node_id: ids.NodeId, *, after: float) -> None:
        watched = self._watched[node_id]
        heapq.heappush(self._due, (self._clock.monotonic() + after, watched.turn, node_id))

    def _ask_due(self) -> None:
        now = self._clock.monotonic()
        while self._due and self._due[0][0] <= now and len(self._asking) < self._pace.concurrency:
            _, turn, node_id = heapq.heappop(self._due)
            watched = self._watched.get(node_id)
            if watched is None or watched.turn != turn or watched.being_asked:
                continue
            watched.being_asked = True
            task = asyncio.create_task(self._ask(watched), name=f"probe {node_id}")
            self._asking.add(task)
            task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._asking.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            _LOG.error("A probe met a fault of ours", exc_info=fault)
        if self._leads:
            self._ask_due()  # a place is free: nobody has to wait for the next tick

    async def _ask(self, watched: _Watched) -> None:
        try:
            report = await self._question(watched)
            fresh = watched.entry.next_certificate_sha256
            if fresh is not None and report.certificate_sha256 == fresh:
                report = await self._promote(watched, report=report)
            await self._take(watched, report=report)
        except (contract.StoreError, leases.LeaseLost) as fault:
            _LOG.warning("A probe's news was not written", extra={"reason": str(fault)})
        finally:
            watched.being_asked = False
            node_id = watched.entry.target.node_id
            if self._watched.get(node_id) is watched:
                self._schedule(node_id, after=self._pause(watched))

    async def _promote(self, watched: _Watched, *, report: liveness.Report) -> liveness.Report:
        """The node has answered with its next certificate: that is the one from now on."""
        work = functools.partial(
            renewal.promote,
            node_id=report.node_id,
            certificate_sha256=str(report.certificate_sha256),
            environment=self._environment,
            now=self._clock.now(),
        )
        pin = await self._write(work)
        watched.entry = dataclasses.replace(watched.entry, next_certificate_sha256=None)
        return report if pin is None else dataclasses.replace(report, pin=pin)

    async def _question(self, watched: _Watched) -> liveness.Report:
        entry = watched.entry
        try:
            if (
                watched.state is states.State.READY
                and not entry.is_configured
                and self._pulses.is_due(entry.target.node_id)
            ):
                told = await self._pulses.ask(entry, timeout_s=self._pace.timeout_seconds)
                if told is not None:
                    lack = self._lack(entry.target.node_id)
                    return told if lack is None else _missed(entry, reason=lack)
            heard = await self._asker.ask(
                entry.target, timeout_s=self._pace.timeout_seconds, trusted=entry.is_configured
            )
        except asking.NoAnswer as fault:
            return _missed(entry, reason=fault.reason)
        if not heard.is_from(entry.target.node_id):
            return _missed(entry, reason="answers-as-another-node", event=states.Event.CONFLICT)
        if not heard.health.trust_keys:
            # A join holds the port and answers for the Agent to come, before it has any trust
            # key; whoever holds none could verify no work, so that is not the node being ready.
            return _missed(entry, reason="joining")
        lack = None if entry.is_configured else self._lack(entry.target.node_id)
        if lack is not None:
            return _missed(entry, reason=lack)
        return liveness.Report(
            node_id=entry.target.node_id,
            pin=entry.target.pin,
            event=states.Event.ANSWER,
            version=heartbeats.well_formed(heard.health.version),
            answered_at=heard.at,
            clock_offset_ms=heard.clock_offset_ms,
            certificate_sha256=heard.certificate_sha256,
        )

    async def _take(self, watched: _Watched, *, report: liveness.Report) -> None:
        """Decides what the news means, and writes it if it means anything."""
        if report.event is states.Event.ANSWER:
            watched.misses = 0
        else:
            watched.misses += 1
            enough = watched.misses >= self._pace.failures
            if watched.state is states.State.READY and not enough:
                return
        if watched.entry.is_configured:
            self._take_configured(watched, report=report)
            return
        after = states.find_after(watched.state, report.event)
        if after is watched.state and report.reason == watched.reason:
            if report.event is states.Event.ANSWER:
                self._still_there[report.node_id] = report
            return
        now = self._clock.now()
        stands = await self._write(functools.partial(liveness.write_change, report=report, now=now))
        if stands is None:
            return
        if stands is not watched.state:
            _LOG.info(
                "A node's state changed",
                extra={
                    "node_id": report.node_id,
                    "state": stands.value,
                    "reason": report.reason,
                },
            )
        watched.state, watched.reason = stands, report.reason

    def _take_configured(self, watched: _Watched, *, report: liveness.Report) -> None:
        node_id = report.node_id
        before = self._learned.get(node_id)
        if report.event is states.Event.ANSWER and report.answered_at is not None:
            watched.state = states.State.READY
            fresh = configured.Learned(
                state=states.State.READY.value,
                version=report.version,
                last_seen_at=clock_kit.to_micros(report.answered_at),
                clock_offset_ms=report.clock_offset_ms,
            )
        else:
            watched.state = states.find_after(watched.state, report.event) or watched.state
            fresh = dataclasses.replace(
                before or configured.Learned(state=watched.state.value),
                state=watched.state.value,
                reason=report.reason,
            )
        self._learned[node_id] = fresh
        self._learned_changed = True

    def _pause(self, watched: _Watched) -> float:
        """The wait until the next question: half to one and a half of the interval."""
        interval = self._pace.interval_seconds
        enrolled_at = watched.entry.enrolled_at
        if (
            watched.state is states.State.ENROLLED
            and enrolled_at is not None
            and self._clock.now() - enrolled_at < EAGER_FOR
        ):
            interval = min(interval, EAGER_SECONDS)
        return interval * self._chance.uniform(0.5, 1.5)


def _missed(
    entry: roster.Entry, *, reason: str, event: states.Event = states.Event.MISS
) -> liveness.Report:
    target = entry.target
    return liveness.Report(node_id=target.node_id, pin=target.pin, event=event, reason=reason)
