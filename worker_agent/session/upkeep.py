"""Keeps the certificate of a node that listens fresh, by errands on the gateway.

Such a node holds no session, so it looks by itself: when its own clock says that it is time, when a
renewal lies unfinished, and when the Platform was put back from a backup (its epoch rose) and may
know an older certificate. Whether it is time is then decided by the Platform's clock. Known limit:
where the Platform has no gateway nothing is renewed, and nobody judges the dates.
"""

import logging

from worker_agent.identity import certificates, own
from worker_agent.session import connecting, errands, outside, targets
from worker_agent.settings import failures, paths

LOGGER = logging.getLogger(__name__)
LOOK_SECONDS = 1800.0
_FIRST_WAIT, _LONGEST_WAIT = 60.0, 6 * 3600.0  # after failures


class Upkeep:
    """The errands of one listening node."""

    def __init__(self, where: paths.Paths, *, around: outside.Outside) -> None:
        self._where = where
        self._around = around
        self._failures = 0
        self._epoch = around.trust.held.statement.epoch

    async def run(self) -> None:
        """Looks for ever; a fault of any kind is told and tried again, ever more rarely."""
        while True:
            wait = await self.look()
            await self._around.clock.sleep(wait)

    async def look(self) -> float:
        """One look; how long to wait until the next."""
        if not self._is_wanted():
            return self._around.chance.uniform(LOOK_SECONDS, 2 * LOOK_SECONDS)
        epoch = self._around.trust.held.statement.epoch
        try:
            made = await errands.renew_if_due(self._where, around=self._around)
        except failures.Failure as failure:
            return self._failed(str(failure))
        except Exception:
            LOGGER.exception("A renewal met a fault of ours")
            return self._failed("a fault of ours, told above")
        self._failures, self._epoch = 0, epoch
        if made is not None:
            LOGGER.info("Certificate renewed", extra={"pin": made.pin})
        self._around.teller.tell(state="listening")
        return self._around.chance.uniform(LOOK_SECONDS, 2 * LOOK_SECONDS)

    async def renew(self, *, new_key: bool) -> None:
        """Renews now, as ordered; raises a `Failure`."""
        made = await errands.renew(self._where, around=self._around, new_key=new_key)
        LOGGER.info("Certificate renewed", extra={"pin": made.pin})

    def _is_wanted(self) -> bool:
        """Whether an errand may be due; without a gateway none can be run."""
        try:
            join, agent = connecting.read(self._where)
            present = own.load(self._where).certificate
        except failures.NeedsOperator as failure:
            LOGGER.warning("The certificate cannot be looked at", extra={"reason": str(failure)})
            return False
        held = self._around.trust.held
        if targets.gateway_of(join, held=held, agent=agent) is None:
            return False
        return (
            certificates.is_due(present, now=self._around.clock.now())
            or self._where.next_certificate.exists()
            or held.statement.epoch != self._epoch
        )

    def _failed(self, reason: str) -> float:
        ceiling = min(_LONGEST_WAIT, _FIRST_WAIT * 2 ** min(self._failures, 10))
        self._failures += 1
        wait = self._around.chance.uniform(_FIRST_WAIT / 2, ceiling)
        LOGGER.warning(
            "The certificate was not renewed",
            extra={"reason": reason, "next_try_seconds": round(wait)},
        )
        self._around.teller.tell(state="listening", reason=reason, next_try_seconds=wait)
        return wait
