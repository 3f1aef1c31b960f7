"""Holds the node's session for ever: opens it, beats, answers, renews, and opens it again.

Nothing here gives up but for what a person must settle, and nothing that happens on the way changes
what the machine holds (F16). A passing fault is tried again in the rhythm of `pace`. A key that is
not the gateway's, or an address at which nobody answers for long, may mean that the Platform has
changed: then the trust question is asked, whose answer is believed by its signature alone.

A renewed certificate is taken into use by opening a second session with it before the first is
closed, so that the node is never away.
"""

import asyncio
import contextlib
import dataclasses
import logging
import os

from runtime_kit import failures as network
from runtime_kit import private_files
from runtime_kit.mux import link as links
from wire_protocol import session, statements, strict_json
from worker_agent.identity import replacing
from worker_agent.session import connecting, outside, pace, renewal, tasks
from worker_agent.settings import failures, paths

LOGGER = logging.getLogger(__name__)
GRACE_SECONDS = 25.0  # with a heartbeat every 30 s, silence of 55 s is the end
UNBELIEVED_SECONDS = 600.0  # of answers by unknown keys alone, from every known address
_TRUST_AFTER = 4  # failures in a row, from which on the Platform may have moved
_TRUST_SECONDS = 60.0  # at most one trust question a minute
_RENEWAL_SECONDS = (60.0, 3600.0)  # the first wait after a failed renewal, and the longest
_ASK_SECONDS = 20.0


class Client:
    """The one session of this node."""

    def __init__(self, where: paths.Paths, *, around: outside.Outside) -> None:
        self._where = where
        self._around = around
        self._clock = around.clock
        self._pace = pace.Pace(chance=around.chance)
        self._connecting = connecting.Connecting(where, around=around, answer=self._answer)
        self._opened: connecting.Opened | None = None
        self._nudge = asyncio.Event()
        self._asked_trust: float | None = None
        self._unbelieved_since: float | None = None
        self._stamp: tuple[int, int] | None = None  # of the certificate in use
        self._renewal_failures = 0
        self._renew_at = 0.0

    @property
    def is_open(self) -> bool:
        """Whether the session carries work now."""
        return self._opened is not None and self._opened.link.ended is None

    async def run(self) -> None:
        """Holds the session until cancelled; raises `NeedsOperator` where only a person can help.

        The link is closed in every case.
        """
        try:
            while True:
                try:
                    wait = await self._once()
                except failures.NeedsOperator:
                    raise
                # Whoever answers there is not to end the Agent by something nobody foresaw.
                except Exception:
                    LOGGER.exception("The session met a fault of ours")
                    wait = self._pace.after_standing()
                await self._clock.sleep(wait)
        finally:
            self._dropped(reason="the Agent stops")

    async def ask(self, method: str, body: bytes) -> bytes:
        """Asks the Platform one question; raises `NetworkFailure`, also while none is open."""
        opened = self._opened
        if opened is None:
            raise links.Closed("No session with the Platform is open")
        return await opened.link.ask(method, body, timeout_s=_ASK_SECONDS)

    async def renew(self, *, new_key: bool) -> None:
        """Renews now; the new certificate is taken into use right after. Raises a `Failure`."""
        opened = self._opened
        if opened is not None and opened.proof.name == "next":
            opened = self._opened = await self._in_place(opened)
        if opened is None or opened.proof.name == "next":
            raise failures.Temporary("The certificate cannot be renewed just now. Try again later.")
        try:
            await renewal.renew(opened, where=self._where, clock=self._clock, new_key=new_key)
        except network.NetworkFailure as error:
            raise failures.Temporary(f"The certificate was not renewed: {error}.") from error
        self._nudge.set()

    async def _once(self) -> float:
        """One session from its opening to its end, or one failed try; how long to wait then."""
        self._around.teller.tell(state="connecting")
        try:
            opened = await self._connecting.open_session()
        except connecting.NotOpened as fault:
            return await self._not_opened(fault)
        self._unbelieved_since = None
        started = self._clock.monotonic()
        ended = await self._hold(opened)
        if self._clock.monotonic() - started >= pace.STEADY_SECONDS:
            self._pace.after_steady()
        wait = self._pace.after_passing(self._clock.monotonic(), asked=ended.retry_after_s)
        self._tell_waiting("Session ended", reason=ended.reason, wait=wait)
        return wait

    async def _not_opened(self, fault: connecting.NotOpened) -> float:
        now = self._clock.monotonic()
        if fault.obstacle is connecting.Obstacle.PASSING:
            wait = self._pace.after_passing(now, asked=fault.retry_after_s)
        else:
            wait = self._pace.after_standing()
        self._tell_waiting("No session", reason=fault.reason, wait=wait, kind=fault.kind)
        if await self._has_platform_changed(fault):
            return self._around.chance.uniform(0, min(wait, 2.0))
        return wait

    async def _has_platform_changed(self, fault: connecting.NotOpened) -> bool:
        """Asks the trust question where the fault may come from a changed Platform.

        True when a newer statement is held now. Raises `NeedsOperator` after ten minutes in which
        every address answered, and nothing but what no key held here has signed.
        """
        is_other_key = fault.obstacle is connecting.Obstacle.OTHER_KEY
        is_standing = fault.obstacle is not connecting.Obstacle.PASSING
        if not (is_standing or self._pace.failures >= _TRUST_AFTER):
            return False
        now = self._clock.monotonic()
        if self._asked_trust is not None and now - self._asked_trust < _TRUST_SECONDS:
            return False
        self._asked_trust = now
        before = self._around.trust.held.statement.number
        try:
            await self._around.trust.ask()
        except failures.NotBelieved as failure:
            if is_other_key:
                self._not_believed(failure, now=now)
        except failures.Failure:
            self._unbelieved_since = None  # told by whoever keeps the trust set
        else:
            self._unbelieved_since = None
        return self._around.trust.held.statement.number > before

    def _not_believed(self, failure: failures.NotBelieved, *, now: float) -> None:
        if self._unbelieved_since is None:
            self._unbelieved_since = now
        elif now - self._unbelieved_since >= UNBELIEVED_SECONDS:
            raise failures.NeedsOperator(
                "Nothing that answers at any address of the Platform is proved by what this "
                f"machine holds, for {(now - self._unbelieved_since) / 60:.0f} minutes: "
                f"{failure.message} Everything is kept as it was, and the Agent stops.",
                hint="Compare on the Platform: enlist nodes platform. If that is the Platform, and "
                "was rebuilt without its trust keys, join this machine anew with a new token: "
                f"mv {self._where.folder} {self._where.folder}.old; enlist worker join -",
            )

    async def _hold(self, opened: connecting.Opened) -> links.Ended:
        """Beats until the session ends; a renewed certificate is taken into use on the way."""
        beside = tasks.Tasks()
        try:
            await self._took_over(opened)
            while True:
                current = self._opened or opened
                if not await self._beat(current, beside=beside):
                    current.link.close(reason="The Platform is silent")
                ended = await self._until_next(current, beside=beside)
                if ended is not None:
                    return ended
        finally:
            await beside.stop()
            self._dropped(reason="over")

    async def _took_over(self, opened: connecting.Opened) -> None:
        """This session is the one that carries work from now on."""
        if opened.proof.name == "next":
            opened = await self._in_place(opened)
        self._stamp = _stamp(self._where)
        before, self._opened = self._opened, opened
        if before is not None:
            before.link.close(reason="replaced by the next session")
        LOGGER.info(
            "Session open",
            extra={
                "gateway": opened.url,
                "session": opened.welcome.session_id,
                "generation": opened.welcome.generation,
                "proof": opened.proof.name,
            },
        )
        self._around.teller.tell(
            state="open",
            gateway=opened.url,
            session_id=opened.welcome.session_id,
            since=self._clock.now(),
        )
        self._around.work.session_opened(self.ask)

    async def _in_place(self, opened: connecting.Opened) -> connecting.Opened:
        """The next pair was welcomed: it takes the present one's place, now or at a later try."""
        try:
            await renewal.put_in_place(self._where, clock=self._clock)
        except failures.Temporary as failure:
            self._renewal_failed(str(failure))
            return opened
        LOGGER.info("Certificate renewed", extra={"pin": opened.proof.pin})
        proof = next(one for one in replacing.candidates(self._where) if one.name == "present")
        return dataclasses.replace(opened, proof=proof)

    async def _beat(self, opened: connecting.Opened, *, beside: tasks.Tasks) -> bool:
        """One heartbeat; False where the Platform is silent."""
        try:
            said = await opened.link.ask(
                session.Ask.HEARTBEAT,
                self._around.heartbeat().to_bytes(),
                timeout_s=GRACE_SECONDS,
            )
            pulse = session.parse_pulse(said)
        except links.Silent:
            quiet = self._clock.monotonic() - opened.link.heard_at()
            return quiet < GRACE_SECONDS
        except links.Closed:
            return True  # `_until_next` tells why
        except (network.NetworkFailure, strict_json.Malformed) as error:
            LOGGER.warning("A heartbeat was not understood", extra={"reason": str(error)})
            return True
        self._around.teller.heard()
        if pulse.statement > self._around.trust.held.statement.number:
            beside.start("session-trust", lambda: self._follow_trust(opened))
        if self._is_renewal_due(opened):
            beside.start("session-renewal", lambda: self._renew_due(opened))
        return True

    async def _follow_trust(self, opened: connecting.Opened) -> None:
        """A newer statement is published: asks for it, at most once a minute."""
        now = self._clock.monotonic()
        if self._asked_trust is not None and now - self._asked_trust < _TRUST_SECONDS:
            return
        self._asked_trust = now
        with contextlib.suppress(failures.Failure):  # told by whoever keeps the trust set
            join, _ = connecting.read(self._where)
            if not join.mode.adopts_statements:
                # over a connection proved by the mode, which tells where the gateway is as well
                with contextlib.suppress(failures.Failure):
                    await self._around.trust.ask()
                    return
            try:
                said = await opened.link.ask(
                    session.Ask.TRUST,
                    b"",
                    timeout_s=_ASK_SECONDS,
                    max_bytes=statements.MAX_ANSWER_BYTES,
                )
            except network.NetworkFailure:
                await self._around.trust.ask()
            else:
                await self._around.trust.take(said, source=opened.url)

    def _is_renewal_due(self, opened: connecting.Opened) -> bool:
        if opened.proof.name == "present" and self._stamp != _stamp(self._where):
            self._nudge.set()  # a command has renewed it: what is new is taken into use
            return False
        if self._clock.monotonic() < self._renew_at:
            return False
        try:
            return renewal.is_due(opened, where=self._where, clock=self._clock)
        except (OSError, ValueError, private_files.LaxMode, private_files.FileTooLarge) as error:
            self._renewal_failed(f"the certificate cannot be read: {error}")
            return False

    async def _renew_due(self, opened: connecting.Opened) -> None:
        """Renews, and has the new certificate taken into use."""
        if opened.proof.name == "next":
            self._opened = await self._in_place(opened)
            return
        try:
            await renewal.renew(opened, where=self._where, clock=self._clock)
        except (network.NetworkFailure, failures.Failure) as error:
            self._renewal_failed(str(error))
        else:
            self._nudge.set()

    def _renewal_failed(self, reason: str) -> None:
        first, most = _RENEWAL_SECONDS
        ceiling = min(most, first * 2 ** min(self._renewal_failures, 10))
        self._renewal_failures += 1
        wait = self._around.chance.uniform(first / 2, ceiling)
        self._renew_at = self._clock.monotonic() + wait
        LOGGER.warning(
            "The certificate was not renewed",
            extra={"reason": reason, "next_try_seconds": round(wait)},
        )

    async def _until_next(
        self, opened: connecting.Opened, *, beside: tasks.Tasks
    ) -> links.Ended | None:
        """Waits for the next heartbeat's time; how the session ended where it does before."""
        beside.start("session-end", opened.link.wait_closed)
        beside.start("session-nudge", self._nudge.wait)
        beside.start("session-sleep", lambda: self._clock.sleep(opened.welcome.heartbeat_seconds))
        await beside.first("session-end", "session-nudge", "session-sleep")
        if self._nudge.is_set():
            self._nudge.clear()
            beside.start("session-handover", self._hand_over)
        if opened.link.ended is not None:
            await beside.finish("session-handover")  # that may be why it ended
            if self._opened is opened:
                return opened.link.ended
        if self._opened is not opened:
            await beside.stop("session-end", "session-sleep")
        return None

    async def _hand_over(self) -> None:
        """Opens a session with the certificate that was just made known, then closes this one."""
        by = "present" if replacing.find_next(self._where) is None else "next"
        try:
            fresh = await self._connecting.open_session(by=by)
        except (connecting.NotOpened, failures.NeedsOperator) as fault:
            if by == "next" and replacing.find_next(self._where) is None:
                self._nudge.set()  # a command has put it in place meanwhile
            else:
                self._renewal_failed(str(fault))
            return
        self._renewal_failures, self._renew_at = 0, 0.0
        try:
            await self._took_over(fresh)
        except BaseException:
            fresh.link.close(reason="not taken over")
            raise

    async def _answer(self, _link: links.Link, method: str, body: bytes) -> bytes:
        """Answers the Platform's questions."""
        if method == session.Ask.HEALTH:
            return self._around.health()
        if method == session.Ask.ORDER:
            return await self._around.work.take(body)
        raise links.Refusal(session.Refusal.UNKNOWN, "This Agent does not know that question.")

    def _dropped(self, *, reason: str) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.link.close(reason=reason)
            self._around.work.session_closed()

    def _tell_waiting(
        self, event: str, *, reason: str, wait: float, kind: network.Kind = network.Kind.TRANSIENT
    ) -> None:
        LOGGER.warning(
            event,
            extra={"reason": reason, "class": kind.value, "next_try_seconds": round(wait, 1)},
        )
        self._around.teller.tell(
            state="waiting", reason=reason, kind=kind.value, next_try_seconds=wait
        )


def _stamp(where: paths.Paths) -> tuple[int, int] | None:
    """What changes with the certificate's file."""
    try:
        info = os.stat(where.certificate)  # noqa: PTH116 - asked at each heartbeat
    except OSError:
        return None
    return info.st_mtime_ns, info.st_ino
