"""The anonymous door: `POST /enroll` and `POST /trust`, for whoever calls.

One store transaction walks the three stages, redeem → enroll → register, each with the receipt of
the one before; everything that can refuse is asked before the token is spent, and the commit is
the last step. What a stranger can trigger is cheap: shape, one look-up, one comparison, and then
the same refusal as for everybody. What is said to whom, in the order it is asked:

1. shape: 422, naming the field;
2. the token's secret: the uniform 403, and past the limits 429;
3. everything else: the uniform 403, whatever it was;
4. a machine newer than the Platform: 409 with both versions, nothing spent;
5. the node: 201, or 200 for the same token and key again.

Known limit: a first-boot phase report belongs to an operation, of which there are none yet, so
every one is refused as for a token without an operation.
"""

import dataclasses
import datetime
import json
import logging
from typing import Any, Final

from platform_server.audit import actions
from platform_server.endpoints import parsing, refusals, salvage
from platform_server.enrollment import attempts, certificate, enroll, limiter
from platform_server.enrollment import refusals as endings
from platform_server.nodes import addresses, asking, configured, reach, register
from platform_server.store import contract
from platform_server.tokens import reasons, redeem
from platform_server.trust import authority
from runtime_kit import clock as clock_kit
from runtime_kit import crash_points
from wire_protocol import (
    agent_url,
    enrollment,
    enrollment_token,
    ids,
    problems,
    product,
    versions,
)

_LOG = logging.getLogger(__name__)

MAX_BODY: Final = 65_536
_JSON: Final = "application/json"
_TRUST_PER_MINUTE: Final = 6000  # a hundred thousand nodes ask once a day: 70 a minute
_TRUST_PER_ADDRESS: Final = 120
_TRIES: Final = 3  # a lost race is looked at again; a second one in a row cannot happen
_KNOWN_FIELDS: Final = frozenset(enrollment.EnrollRequest.model_fields) | frozenset(
    enrollment.PhaseReport.model_fields
)

SPENT = crash_points.declare(
    "enroll.spent", story="token spent and node written, the transaction is not committed"
)
COMMITTED = crash_points.declare(
    "enroll.committed", story="the enrollment is committed, the machine has no answer yet"
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DoorAnswer:
    """What goes back, whichever server carries it."""

    status: int
    body: bytes = dataclasses.field(repr=False)
    media_type: str = _JSON
    retry_after_seconds: int | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the settings say to this door."""

    infra: str
    environment: str
    limits: limiter.Limits
    cap: attempts.Cap
    agent_networks: tuple[addresses.Network, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Knock:
    """An enroll request in its right shape."""

    token: enrollment_token.EnrollmentToken
    claim: enroll.Claim
    address: str | None


_Ending = register.Registered | endings.Refused | endings.Limited | endings.WorkerNewer


def _uniform() -> DoorAnswer:
    problem = problems.Problem(code=endings.CODE, detail=endings.DETAIL)
    return DoorAnswer(
        status=problem.meaning.status, body=problem.to_json(), media_type=problems.MEDIA_TYPE
    )


REFUSED: Final = _uniform()


class EnrollDoor:
    """Answers enroll and trust requests."""

    def __init__(
        self,
        store: contract.Store,
        *,
        trust: authority.Authority | None,
        operators: configured.ConfiguredNodes,
        reacher: reach.Reacher | None,
        rules: Rules,
        clock: clock_kit.Clock,
    ) -> None:
        self._store = store
        self._trust = trust
        self._operators = operators
        self._reacher = reacher
        self._rules = rules
        self._clock = clock
        self._limiter: limiter.Limiter = (
            limiter.MemoryLimiter(rules.limits)
            if store.dialect is contract.Dialect.SQLITE
            else limiter.SharedLimiter(rules.limits)
        )
        self._invalid = limiter.Allowance(
            per_minute=rules.limits.per_minute, per_address=rules.limits.per_address
        )
        self._trust_asked = limiter.Allowance(
            per_minute=_TRUST_PER_MINUTE, per_address=_TRUST_PER_ADDRESS
        )

    async def answer_enroll(self, body: bytes, *, address: str | None) -> DoorAnswer:
        """Answers one enroll request; raises `StoreError` as the store does."""
        try:
            knock = self._read(body, address=address)
        except refusals.Refusal as refusal:
            await self._record_invalid(body, refusal=refusal, address=address)
            return _problem(refusal.code, refusal.detail, members=refusal.members)
        if knock is None:
            return await self._refuse_phase(body)
        ending = await self._store.transact(lambda tx: self._decide(tx, knock=knock))
        if isinstance(ending, register.Registered):
            crash_points.reach(COMMITTED)
            return await self._welcome(ending, knock=knock)
        if isinstance(ending, endings.Limited):
            return limited(ending.retry_after_seconds)
        if isinstance(ending, endings.WorkerNewer):
            return _worker_newer(ending)
        return REFUSED

    async def answer_trust(self, body: bytes, *, address: str | None) -> DoorAnswer:
        """Answers one trust question: the present statement and the chain that leads to it."""
        wait = self._trust_asked.take(address=address, now=self._clock.now())
        if wait is not None:
            return limited(wait)
        if body.strip() != b"{}" and not _is_empty_object(body):
            return _problem("invalid", "The body of a trust question is {}.")
        if self._trust is None:
            return _problem("nodes-disabled", "This Platform takes no nodes.")
        return DoorAnswer(status=200, body=self._trust.answers.trust)

    def _read(self, body: bytes, *, address: str | None) -> _Knock | None:
        """The request in its shape; None for a phase report; raises `Refusal` naming the field."""
        if len(body) > MAX_BODY:
            raise refusals.Refusal("too-large", f"The body may have at most {MAX_BODY} bytes.")
        try:
            request = parsing.read_body(body, model=enrollment.EnrollRequest)
        except refusals.Refusal as refusal:
            if refusal.members.get("field") not in ("phase", "certificate_pem"):
                raise
            if b'"phase"' not in body or b'"certificate_pem"' in body:
                raise
            parsing.read_body(body, model=enrollment.PhaseReport)
            return None
        if not isinstance(request, enrollment.EnrollRequest):
            raise TypeError("The enroll request was read as another model.")
        return _Knock(
            token=enrollment_token.parse(request.token.get_secret_value()),
            claim=self._claim(request, address=address),
            address=address,
        )

    def _claim(self, request: enrollment.EnrollRequest, *, address: str | None) -> enroll.Claim:
        try:
            shown = certificate.read(request.certificate_pem)
        except certificate.Malformed as fault:
            raise refusals.invalid("certificate_pem", f"certificate_pem: {fault}") from None
        if request.url is not None:
            try:
                addresses.judge_url(
                    agent_url.parse(request.url),
                    caller_is_local=addresses.is_loopback(address),
                    networks=self._rules.agent_networks,
                )
            except addresses.Forbidden as fault:
                raise refusals.invalid("url", f"url: {fault}") from None
        return enroll.Claim(
            node_id=ids.NodeId(request.node_id),
            certificate=shown,
            version=request.version,
            url=request.url,
            reported_labels=request.reported_labels,
            instance=request.instance,
        )

    async def _decide(self, tx: contract.Tx, *, knock: _Knock) -> _Ending:
        """The one transaction: prove, judge, redeem, enroll, register."""
        now = self._clock.now()
        for _ in range(_TRIES):
            proved = await redeem.prove(tx, token=knock.token)
            if not isinstance(proved, redeem.Proved):
                return await self._refuse_stranger(tx, knock=knock, reason=proved, now=now)
            reason = redeem.judge(
                proved, node_id=knock.claim.node_id, address=knock.address, now=now
            )
            if reason is reasons.Reason.ALREADY_USED and redeem.is_repeat(
                proved, pin=knock.claim.certificate.pin
            ):
                return await self._repeat(tx, knock=knock, proved=proved, now=now)
            reason = await self._examine(tx, proved=proved, knock=knock, judged=reason)
            if reason is not None:
                return await self._refuse(tx, knock=knock, reason=reason, proved=proved, now=now)
            if _is_newer(knock.claim.version):
                return await self._refuse_newer(tx, knock=knock, proved=proved, now=now)
            redeemed = await redeem.redeem(
                tx, proved=proved, pin=knock.claim.certificate.pin, now=now
            )
            if redeemed is not None:
                enrolled = await enroll.enroll(
                    tx, redeemed=redeemed, claim=knock.claim, now=now, cap=self._rules.cap
                )
                registered = await register.register(
                    tx, enrolled=enrolled, environment=self._rules.environment, now=now
                )
                crash_points.reach(SPENT)
                return registered
        raise contract.StoreBusy("The enrollment changed under every look at it; try again.")

    async def _examine(
        self,
        tx: contract.Tx,
        *,
        proved: redeem.Proved,
        knock: _Knock,
        judged: reasons.Reason | None,
    ) -> reasons.Reason | None:
        """The first reason against a proved token: the token itself, the key's proof, the node.

        All of it is asked whatever was found first, so that every refusal takes as long.
        """
        signed = certificate.is_signed_by_itself(knock.claim.certificate)
        standing = await register.examine(
            tx, proved=proved, pin=knock.claim.certificate.pin, operators=self._operators
        )
        if judged is not None:
            return judged
        if self._trust is None:
            return reasons.Reason.NODES_DISABLED
        return standing if signed else reasons.Reason.BAD_SIGNATURE

    async def _repeat(
        self, tx: contract.Tx, *, knock: _Knock, proved: redeem.Proved, now: datetime.datetime
    ) -> register.Registered | endings.Refused:
        """The same token and key once more."""
        signed = certificate.is_signed_by_itself(knock.claim.certificate)
        again = (
            await register.repeat(
                tx, proved=proved, claim=knock.claim, operators=self._operators, now=now
            )
            if signed
            else reasons.Reason.BAD_SIGNATURE
        )
        if self._trust is None:
            again = reasons.Reason.NODES_DISABLED
        if isinstance(again, register.Registered):
            return again
        return await self._refuse(tx, knock=knock, reason=again, proved=proved, now=now)

    async def _refuse_stranger(
        self,
        tx: contract.Tx,
        *,
        knock: _Knock,
        reason: reasons.Reason,
        now: datetime.datetime,
    ) -> endings.Refused | endings.Limited:
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
        knock: _Knock,
        reason: reasons.Reason,
        proved: redeem.Proved | None,
        now: datetime.datetime,
    ) -> endings.Refused:
        exists = proved is not None and reason in reasons.NODE_EXISTS
        is_news = await attempts.record(
            tx,
            outcome=attempts.Outcome.NODE_EXISTS if exists else attempts.Outcome.REFUSED,
            reason=reason.value,
            node_id=knock.claim.node_id,
            version=knock.claim.version,
            infra=self._rules.infra if proved is None else proved.enrollment.infra,
            now=now,
            cap=self._rules.cap,
        )
        if is_news and exists and proved is not None:
            await self._act(
                tx,
                knock=knock,
                proved=proved,
                action="node.exists",
                details={"reason": reason.value},
                now=now,
            )
        return endings.Refused(reason=reason)

    async def _refuse_newer(
        self, tx: contract.Tx, *, knock: _Knock, proved: redeem.Proved, now: datetime.datetime
    ) -> endings.WorkerNewer:
        """Recorded in both logs; a machine that keeps asking is counted, not written again."""
        claim = knock.claim
        is_news = await attempts.record(
            tx,
            outcome=attempts.Outcome.WORKER_NEWER,
            reason=f"machine {claim.version}, Platform {product.VERSION}",
            node_id=claim.node_id,
            version=claim.version,
            infra=proved.enrollment.infra,
            now=now,
            cap=self._rules.cap,
        )
        if is_news:
            await self._act(
                tx,
                knock=knock,
                proved=proved,
                action="node.worker-newer",
                details={"machine": claim.version, "platform": product.VERSION},
                now=now,
            )
        return endings.WorkerNewer(machine_version=claim.version, platform_version=product.VERSION)

    async def _act(
        self,
        tx: contract.Tx,
        *,
        knock: _Knock,
        proved: redeem.Proved,
        action: str,
        details: dict[str, Any],
        now: datetime.datetime,
    ) -> None:
        """Writes into the action log what a machine with a proved token has run into."""
        await actions.append(
            tx,
            action=actions.Action(
                at=now,
                actor=f"enrollment:{proved.enrollment.enrollment_id}",
                action=action,
                target=knock.claim.node_id,
                infra=proved.enrollment.infra,
                environment=self._rules.environment,
                details=details,
            ),
        )

    async def _welcome(self, registered: register.Registered, *, knock: _Knock) -> DoorAnswer:
        if self._trust is None:
            raise authority.NotStarted("A node was registered without trust keys.")
        reached: reach.Reached | None = None
        if registered.url is not None and self._reacher is not None:
            reached = await self._reacher.reach(
                asking.Target(
                    node_id=registered.node_id,
                    url=registered.url,
                    pin=knock.claim.certificate.pin,
                    certificate_pem=knock.claim.certificate.pem,
                )
            )
        return DoorAnswer(
            status=201 if registered.first_time else 200,
            body=self._trust.answers.enroll(
                node_id=registered.node_id,
                generation=registered.generation,
                reachable=None if reached is None else reached.reachable,
                reachable_reason=None if reached is None else reached.reason,
            ),
        )

    async def _refuse_phase(self, body: bytes) -> DoorAnswer:
        """A phase report without an operation: refused like a bad token, after the same look-up."""
        report = enrollment.PhaseReport.model_validate_json(body)
        token = enrollment_token.parse(report.token.get_secret_value())
        await self._store.read(lambda tx: redeem.prove(tx, token=token))
        return REFUSED

    async def _record_invalid(
        self, body: bytes, *, refusal: refusals.Refusal, address: str | None
    ) -> None:
        """Writes a misshapen request down, unless too many have been this minute.

        Only words of ours are kept: the name of a field that exists, a node id and a version that
        are well formed. A full or busy store must not turn a 422 into a 503.
        """
        now = self._clock.now()
        if self._invalid.take(address=address, now=now) is not None:
            return
        field = str(refusal.members.get("field", "")).partition(".")[0]
        node_id, version = salvage.read(body[:MAX_BODY])

        async def work(tx: contract.Tx) -> None:
            await attempts.record(
                tx,
                outcome=attempts.Outcome.INVALID,
                reason=field if field in _KNOWN_FIELDS else refusal.code,
                node_id=node_id,
                version=version,
                infra=self._rules.infra,
                now=now,
                cap=self._rules.cap,
            )

        try:
            await self._store.transact(work)
        except contract.StoreError as fault:
            _LOG.warning("An invalid attempt was not recorded", extra={"reason": str(fault)})


def _is_newer(version: str) -> bool:
    return version != product.VERSION and versions.is_newer(version, product.VERSION)


def limited(seconds: int) -> DoorAnswer:
    """429 with the wait in header and body."""
    return _problem(
        "too-many", "Too many failed attempts; try again later.", retry_after_seconds=seconds
    )


def _worker_newer(ending: endings.WorkerNewer) -> DoorAnswer:
    return _problem(
        "worker-newer",
        f"This machine runs Enlist {ending.machine_version}, the Platform "
        f"{ending.platform_version}. Update the Platform; the token stays good until then.",
        members={
            "worker_version": ending.machine_version,
            "platform_version": ending.platform_version,
        },
    )


def _problem(
    code: str,
    detail: str,
    *,
    members: dict[str, Any] | None = None,
    retry_after_seconds: int | None = None,
) -> DoorAnswer:
    problem = problems.Problem(
        code=code, detail=detail, retry_after=retry_after_seconds, fields=members or {}
    )
    return DoorAnswer(
        status=problem.meaning.status,
        body=problem.to_json(),
        media_type=problems.MEDIA_TYPE,
        retry_after_seconds=retry_after_seconds,
    )


def _is_empty_object(body: bytes) -> bool:
    try:
        return bool(json.loads(body) == {})
    except (ValueError, RecursionError):
        return False
