"""Deciding about an enroll request: the one store transaction, and which way it ends.

It walks the three stages, redeem → enroll → register, each with the receipt of the one before;
everything that can refuse is asked before the token is spent, and the commit is the last step.
What a stranger can trigger is cheap: one look-up, one comparison, and then the same refusal as for
everybody. Every refusal stands in the audit. Those that say something of a good token stand in the
action log too, once an hour for each node, whatever the machine says of itself.

An ordered machine shows a ticket as well (`cloud.admission`): its signature is checked before
anything is looked up, and the machine is let in only where the provider's own view agrees. Where
that view is too old, nothing is spent and it is told to ask again; no provider is called here.
"""

import dataclasses
import datetime
from collections.abc import Callable, Mapping
from typing import Any, Final

from platform_server.audit import actions
from platform_server.cloud import admission
from platform_server.endpoints import enroll_request
from platform_server.enrollment import attempts, certificate, enroll, limiter
from platform_server.enrollment import refusals as endings
from platform_server.nodes import addresses, configured, register, registry
from platform_server.store import contract
from platform_server.tokens import reasons, redeem
from runtime_kit import clock as clock_kit
from runtime_kit import crash_points
from wire_protocol import product, statements, versions

_TRIES: Final = 3  # a lost race is looked at again; a second one in a row cannot happen

SPENT = crash_points.declare(
    "enroll.spent", story="token spent and node written, the transaction is not committed"
)

Refusal = endings.Refused | endings.Limited
Ending = register.Registered | Refusal | endings.WorkerNewer | admission.NotYet
TrustKeys = Callable[[], tuple[statements.TrustKey, ...]]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the settings say to this door."""

    infra: str
    environment: str
    limits: limiter.Limits
    cap: attempts.Cap
    agent_networks: tuple[addresses.Network, ...] = ()


class Decider:
    """Decides within a transaction that the door opens and commits."""

    def __init__(
        self,
        *,
        dialect: contract.Dialect,
        operators: configured.ConfiguredNodes,
        rules: Rules,
        takes_nodes: bool,
        clock: clock_kit.Clock,
        trust_keys: TrustKeys = tuple,
    ) -> None:
        self._operators = operators
        self._trust_keys = trust_keys
        self._rules = rules
        self._clock = clock
        self._takes_nodes = takes_nodes
        self._limiter: limiter.Limiter = (
            limiter.MemoryLimiter(rules.limits)
            if dialect is contract.Dialect.SQLITE
            else limiter.SharedLimiter(rules.limits)
        )

    async def admit(self, tx: contract.Tx, *, knock: enroll_request.Enrolling) -> Ending:
        """Prove, judge, redeem, enroll, register."""
        now = self._clock.now()
        pin = knock.claim.certificate.pin
        shown = admission.read(knock.ticket, trust_keys=self._trust_keys(), now=now)
        for _ in range(_TRIES):
            proved = await redeem.prove(tx, token=knock.token)
            if not isinstance(proved, redeem.Proved):
                return await self._refuse_stranger(tx, knock=knock, reason=proved, now=now)
            judged = redeem.judge(proved, node_id=knock.node_id, address=knock.address, now=now)
            if judged is reasons.Reason.ALREADY_USED and redeem.is_repeat(proved, pin=pin):
                return await self._repeat(tx, knock=knock, proved=proved, now=now)
            signed = certificate.is_signed_by_itself(knock.claim.certificate)
            examined = await register.examine(tx, proved=proved, pin=pin, operators=self._operators)
            if examined.is_stale:
                continue
            ticket = await admission.judge(
                tx,
                found=proved.enrollment,
                token=knock.token,
                shown=shown,
                instance=knock.instance,
                now=now,
            )
            # all of it was asked whatever was found first, so that every refusal takes as long
            reason = judged or self._reason(examined, signed=signed)
            if reason is None and isinstance(ticket, admission.NotYet):
                return ticket
            if reason is None and isinstance(ticket, reasons.Reason):
                reason = ticket
            if reason is not None:
                return await self._refuse(tx, knock=knock, reason=reason, proved=proved, now=now)
            if _is_newer(knock.claim.version):
                return await self._refuse_newer(tx, knock=knock, proved=proved, now=now)
            redeemed = await redeem.redeem(tx, proved=proved, pin=pin, now=now)
            if redeemed is not None:
                return await self._register(tx, redeemed=redeemed, claim=knock.claim, now=now)
        raise contract.StoreBusy("The enrollment changed under every look at it; try again.")

    async def report(
        self, tx: contract.Tx, *, knock: enroll_request.Reporting
    ) -> Refusal | admission.Reported:
        """A phase of first boot; without an operation refused like all else, in as much time.

        Spends nothing, and goes by with a spent token for as long as the operation is open.
        """
        now = self._clock.now()
        shown = admission.read(knock.ticket, trust_keys=self._trust_keys(), now=now)
        proved = await redeem.prove(tx, token=knock.token)
        if not isinstance(proved, redeem.Proved):
            return await self._refuse_stranger(tx, knock=knock, reason=proved, now=now)
        # a stranger's failure is counted in the time that this takes
        await registry.standing_of(tx, node_id=knock.node_id, operators=self._operators)
        reported: admission.Reported | reasons.Reason | int = reasons.Reason.WRONG_NODE
        if proved.enrollment.node_id == knock.node_id:
            reported = await admission.report(
                tx,
                found=proved.enrollment,
                token=knock.token,
                shown=shown,
                phase=knock.phase,
                detail=knock.detail,
                now=now,
            )
        if isinstance(reported, reasons.Reason):
            return await self._refuse(tx, knock=knock, reason=reported, proved=proved, now=now)
        if isinstance(reported, int):
            return endings.Limited(retry_after_seconds=reported)
        return reported

    async def _register(
        self,
        tx: contract.Tx,
        *,
        redeemed: redeem.Redeemed,
        claim: enroll.Claim,
        now: datetime.datetime,
    ) -> register.Registered:
        enrolled = await enroll.enroll(
            tx, redeemed=redeemed, claim=claim, now=now, cap=self._rules.cap
        )
        registered = await register.register(
            tx, enrolled=enrolled, environment=self._rules.environment, now=now
        )
        await admission.enrolled(tx, found=redeemed.enrollment, now=now)
        crash_points.reach(SPENT)
        return registered

    def _reason(self, examined: register.Examined, *, signed: bool) -> reasons.Reason | None:
        """What speaks against a key whose token is good."""
        if not self._takes_nodes:
            return reasons.Reason.NODES_DISABLED
        return examined.reason if signed else reasons.Reason.BAD_SIGNATURE

    async def _repeat(
        self,
        tx: contract.Tx,
        *,
        knock: enroll_request.Enrolling,
        proved: redeem.Proved,
        now: datetime.datetime,
    ) -> register.Registered | endings.Refused:
        """The same token and key once more. All that refuses is asked first: it may write."""
        again: register.Registered | reasons.Reason
        if not self._takes_nodes:
            again = reasons.Reason.NODES_DISABLED
        elif not certificate.is_signed_by_itself(knock.claim.certificate):
            again = reasons.Reason.BAD_SIGNATURE
        else:
            again = await register.repeat(
                tx,
                proved=proved,
                claim=knock.claim,
                operators=self._operators,
                environment=self._rules.environment,
                now=now,
            )
        if isinstance(again, register.Registered):
            return again
        return await self._refuse(tx, knock=knock, reason=again, proved=proved, now=now)

    async def _refuse_stranger(
        self,
        tx: contract.Tx,
        *,
        knock: enroll_request.Knock,
        reason: reasons.Reason,
        now: datetime.datetime,
    ) -> Refusal:
        wait = await self._limiter.count_failure(
            tx, address=knock.address, token_id=knock.token.enrollment_id, now=now
        )
        if wait is not None:
            return endings.Limited(retry_after_seconds=wait)
        return await self._refuse(tx, knock=knock, reason=reason, proved=None, now=now)

    async def _refuse(
        self,
        tx: contract.Tx,
        *,
        knock: enroll_request.Knock,
        reason: reasons.Reason,
        proved: redeem.Proved | None,
        now: datetime.datetime,
    ) -> endings.Refused:
        exists = proved is not None and reason in reasons.NODE_EXISTS
        is_news = await attempts.record(
            tx,
            outcome=attempts.Outcome.NODE_EXISTS if exists else attempts.Outcome.REFUSED,
            reason=reason.value,
            node_id=knock.node_id,
            version=knock.version,
            infra=self._rules.infra if proved is None else proved.enrollment.infra,
            now=now,
            cap=self._rules.cap,
        )
        if is_news and exists and proved is not None:
            await self._act(
                tx,
                proved=proved,
                action="node.exists",
                details={"reason": reason.value},
                now=now,
            )
        return endings.Refused(reason=reason)

    async def _refuse_newer(
        self,
        tx: contract.Tx,
        *,
        knock: enroll_request.Enrolling,
        proved: redeem.Proved,
        now: datetime.datetime,
    ) -> endings.WorkerNewer:
        """Recorded in both logs; a machine that keeps asking is counted, not written again."""
        machine = knock.claim.version
        is_news = await attempts.record(
            tx,
            outcome=attempts.Outcome.WORKER_NEWER,
            reason=f"Platform {product.VERSION}",
            node_id=knock.node_id,
            version=machine,
            infra=proved.enrollment.infra,
            now=now,
            cap=self._rules.cap,
        )
        if is_news:
            await self._act(
                tx,
                proved=proved,
                action="node.worker-newer",
                details={"machine": machine, "platform": product.VERSION},
                now=now,
            )
        return endings.WorkerNewer(machine_version=machine, platform_version=product.VERSION)

    async def _act(
        self,
        tx: contract.Tx,
        *,
        proved: redeem.Proved,
        action: str,
        details: Mapping[str, Any],
        now: datetime.datetime,
    ) -> None:
        """Writes into the action log what a machine with a proved token has run into."""
        await actions.append(
            tx,
            action=actions.Action(
                at=now,
                actor=f"enrollment:{proved.enrollment.enrollment_id}",
                action=action,
                target=proved.enrollment.node_id,
                infra=proved.enrollment.infra,
                environment=self._rules.environment,
                details=details,
            ),
        )


def _is_newer(version: str) -> bool:
    return version != product.VERSION and versions.is_newer(version, product.VERSION)
