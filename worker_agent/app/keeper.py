"""Keeps the trust set of a running Agent fresh: the one task that asks, and the one that watches.

Failure of any kind keeps what is held and is a line in the log. The file is watched as well, since
`enlist worker refresh-trust` writes it beside the running Agent.
"""

import asyncio
import logging
import os
import random
from collections.abc import Mapping

from runtime_kit import clock as clock_kit
from wire_protocol import helper_protocol as helper
from wire_protocol import statements, strict_json, trust
from worker_agent.app import anchors, logs
from worker_agent.door import root_helper
from worker_agent.settings import documents, failures, paths, trust_file
from worker_agent.trust import refresh, rhythm

LOGGER = logging.getLogger(__name__)
WATCH_SECONDS = 5.0  # how soon a hand-made refresh is in use; a stat costs microseconds


class Keeper:
    """Asks in its rhythm, and sooner when a client shows up with an unknown key."""

    def __init__(
        self,
        where: paths.Paths,
        *,
        trusted: anchors.Anchors,
        clock: clock_kit.Clock,
        chance: random.Random,
        environment: Mapping[str, str],
    ) -> None:
        self._where = where
        self._trusted = trusted
        self._clock = clock
        self._rhythm = rhythm.Rhythm(chance=chance)
        self._environment = environment
        self._helper = root_helper.of(environment)
        self._handed_on: tuple[int, int] | None = None
        self._unknown_key = asyncio.Event()
        self._stamp: tuple[int, int] | None = _stamp(where)

    @property
    def held(self) -> trust.Held:
        """The set in use."""
        return self._trusted.held

    def unknown_key(self) -> None:
        """A client came with a certificate by a key that is not held: ask, at most once an hour."""
        if self._rhythm.may_follow_up(self._clock.monotonic()):
            self._unknown_key.set()

    async def run(self) -> None:
        """Asks at start, then in the rhythm, for ever."""
        while True:
            wait = await self._once()
            await self._wait(wait)

    async def ask(self) -> None:
        """Asks now, over the enrollment listener; raises a `Failure`, and what is held stays."""
        try:
            done = await self._refreshed()
        except failures.Failure as failure:
            logs.warning(
                LOGGER, "The trust set was not refreshed, the held one stays", reason=str(failure)
            )
            raise
        await self._took(done)

    async def take(self, answer: bytes, *, source: str) -> None:
        """Keeps an answer that came over the session; raises as `ask` does."""
        try:
            done = await refresh.take(self._where, answer, source=source, clock=self._clock)
        except failures.Failure as failure:
            logs.warning(LOGGER, "The session's trust set was not taken over", reason=str(failure))
            raise
        await self._took(done)

    async def watch(self) -> None:
        """Takes over a trust set that another command has written, for ever."""
        while True:
            await self._clock.sleep(WATCH_SECONDS)
            self.look()

    def look(self) -> None:
        """Takes the file over if it has changed; a damaged one is left and told."""
        stamp = _stamp(self._where)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            held = trust_file.read(self._where.trust)
        except documents.Damaged as error:
            logs.warning(LOGGER, "The trust file is damaged, the set in memory stays", fault=error)
            return
        if held is None:
            logs.warning(LOGGER, "The trust file is gone, the set in memory stays")
            return
        if held.statement.number > self._trusted.held.statement.number:
            self._trusted.replace(held)
            logs.info(LOGGER, "Trust set taken over from the file", **_told(self._trusted))

    async def _once(self) -> float:
        """One refresh; returns how long to wait until the next."""
        try:
            done = await self._refreshed()
        except failures.Failure as failure:
            return self._not_refreshed(reason=str(failure))
        # Whoever answers at that address is not to end the Agent by something nobody foresaw.
        except Exception:
            LOGGER.exception("A refresh met a fault of ours")
            return self._not_refreshed(reason="a fault of ours, told above")
        await self._took(done)
        return self._rhythm.wait_after_success(self._clock.now())

    async def _refreshed(self) -> refresh.Refreshed:
        return await refresh.refresh(
            self._where,
            clock=self._clock,
            warn=lambda text: logs.warning(LOGGER, text),
            environment=self._environment,
        )

    async def _took(self, done: refresh.Refreshed) -> None:
        self._stamp = _stamp(self._where)
        if done.after.statement.number >= self._trusted.held.statement.number:
            self._trusted.replace(done.after)
        event = "Trust set renewed" if done.changed else "Trust set is current"
        logs.info(LOGGER, event, **_told(self._trusted))
        await self._hand_on(done.answer)

    async def _hand_on(self, answer: statements.TrustAnswer) -> None:
        """The root helper keeps a set of its own, and believes a newer one by its signature alone.

        Once for each set and each start of the Agent; what fails is tried with the next answer.
        """
        number = self._trusted.held.statement.number
        if number == self._handed_on or not self._helper.is_there:
            return
        wire = [one.to_wire() for one in answer.chain]
        content = strict_json.write({**answer.present.to_wire(), "chain": wire})
        try:
            line = await self._helper.ask(helper.write_question(helper.Verb.TRUST), content=content)
            helper.parse_done(line, state="held")
        except (root_helper.NotAsked, helper.Refused, strict_json.Malformed) as error:
            logs.warning(LOGGER, "The root helper did not take the trust set", reason=str(error))
            return
        self._handed_on = number

    def _not_refreshed(self, *, reason: str) -> float:
        wait = self._rhythm.wait_after_failure()
        logs.warning(
            LOGGER,
            "The trust set was not refreshed, the held one stays",
            reason=reason,
            next_try_seconds=round(wait),
        )
        return wait

    async def _wait(self, seconds: float) -> None:
        """Waits that long, or until an unknown key is to be followed up."""
        self._unknown_key.clear()
        sleeping = asyncio.create_task(self._clock.sleep(seconds), name="trust-sleep")
        noticing = asyncio.create_task(self._unknown_key.wait(), name="trust-unknown-key")
        try:
            done, _ = await asyncio.wait({sleeping, noticing}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # a fault of the clock is not to be swallowed
        finally:
            sleeping.cancel()
            noticing.cancel()
            await asyncio.gather(sleeping, noticing, return_exceptions=True)


def _stamp(where: paths.Paths) -> tuple[int, int] | None:
    try:
        info = os.stat(where.trust)  # noqa: PTH116 - asked every five seconds for years
    except OSError:
        return None
    return info.st_mtime_ns, info.st_ino


def _told(trusted: anchors.Anchors) -> dict[str, object]:
    statement = trusted.held.statement
    return {
        "epoch": statement.epoch,
        "serial": statement.serial,
        "trust_keys": list(trusted.key_ids()),
    }
