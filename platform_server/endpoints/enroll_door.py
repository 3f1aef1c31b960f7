"""The anonymous door: `POST /enroll` and `POST /trust`, for whoever calls.

What is said to whom, in the order it is asked (`enroll_request` reads, `enroll_decision` decides):

1. shape: 422, naming the field;
2. the token's secret: the uniform 403, and past the limits 429;
3. everything else: the uniform 403, whatever it was;
4. an ordered machine that the provider's own view is too old for: 503, nothing spent;
5. a machine newer than the Platform: 409 with both versions, nothing spent;
6. the node: 201, or 200 for the same token and key again; 204 for a phase of first boot.

The uniform 403 is one constant body, without a request id; every other problem carries the id of
its request, as the server that asks here knows it.
"""

import dataclasses
import json
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from platform_server.cloud import admission
from platform_server.endpoints import enroll_decision, enroll_request, refusals, salvage
from platform_server.enrollment import attempts, certificate, limiter
from platform_server.enrollment import refusals as endings
from platform_server.mesh import places as mesh_places
from platform_server.nodes import asking, configured, reach, register
from platform_server.store import contract
from platform_server.trust import authority
from runtime_kit import clock as clock_kit
from runtime_kit import crash_points
from wire_protocol import enrollment, ids, mesh, problems

_LOG = logging.getLogger(__name__)

_JSON: Final = "application/json"
_TRUST_PER_MINUTE: Final = 6000  # a hundred thousand nodes ask once a day: 70 a minute
_TRUST_PER_ADDRESS: Final = 120

Joined = Callable[[ids.NodeId, certificate.MachineCertificate], None]
"""Told of a node whose enrollment is committed, before the machine has its answer."""

GatewayNear = Callable[[str], str | None]
"""The gateway for an ordered machine, by the address in its ticket; None: the same as for all."""

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


class EnrollDoor:
    """Answers enroll and trust requests."""

    def __init__(
        self,
        store: contract.Store,
        *,
        trust: authority.Authority | None,
        operators: configured.ConfiguredNodes,
        reacher: reach.Reacher | None,
        rules: enroll_decision.Rules,
        clock: clock_kit.Clock,
        places: mesh_places.Places | None = None,
        joined: Joined | None = None,
        ordered_changed: Callable[[], None] | None = None,
        gateway_near: GatewayNear | None = None,
    ) -> None:
        self._gateway_near = gateway_near
        self._ordered_changed = ordered_changed
        self._store = store
        self._joined = joined
        self._places = places
        self._trust = trust
        self._reacher = reacher
        self._rules = rules
        self._clock = clock
        self._decider = enroll_decision.Decider(
            dialect=store.dialect,
            operators=operators,
            rules=rules,
            takes_nodes=trust is not None,
            clock=clock,
            trust_keys=tuple
            if trust is None
            else lambda: tuple(trust.published.statement.trust_keys),
        )
        self._invalid = limiter.Allowance(
            per_minute=rules.limits.per_minute, per_address=rules.limits.per_address
        )
        self._trust_asked = limiter.Allowance(
            per_minute=_TRUST_PER_MINUTE, per_address=_TRUST_PER_ADDRESS
        )

    async def answer_enroll(
        self, body: bytes, *, address: str | None, request_id: str
    ) -> DoorAnswer:
        """Answers one enroll request; raises `StoreError` as the store does."""
        try:
            knock = enroll_request.read(body, address=address, networks=self._rules.agent_networks)
        except refusals.Refusal as refusal:
            await self._record_invalid(body, refusal=refusal, address=address)
            return _problem(
                refusal.code, refusal.detail, request_id=request_id, members=refusal.members
            )
        ending: enroll_decision.Ending | admission.Reported
        if isinstance(knock, enroll_request.Reporting):
            ending = await self._store.transact(lambda tx: self._decider.report(tx, knock=knock))
        else:
            ending, place = await self._store.transact(lambda tx: self._admit(tx, knock=knock))
            if isinstance(ending, register.Registered):
                crash_points.reach(COMMITTED)
                if self._joined is not None:
                    self._joined(ending.node_id, knock.claim.certificate)
                if knock.ticket is not None:
                    self._tell_operation()
                return await self._welcome(ending, knock=knock, place=place)
        if isinstance(ending, admission.Reported | admission.NotYet):
            self._tell_operation()
            return _not_yet(ending, request_id=request_id)
        if isinstance(ending, endings.Limited):
            return limited(ending.retry_after_seconds, request_id=request_id)
        if isinstance(ending, endings.WorkerNewer):
            return _worker_newer(ending, request_id=request_id)
        return REFUSED

    async def answer_trust(
        self, body: bytes, *, address: str | None, request_id: str
    ) -> DoorAnswer:
        """Answers one trust question: the present statement and the chain that leads to it."""
        wait = self._trust_asked.take(address=address, now=self._clock.now())
        if wait is not None:
            return limited(wait, request_id=request_id)
        if body.strip() != b"{}" and not _is_empty_object(body):
            return _problem("invalid", "The body of a trust question is {}.", request_id=request_id)
        if self._trust is None:
            return _problem(
                "nodes-disabled", "This Platform takes no nodes.", request_id=request_id
            )
        return DoorAnswer(status=200, body=self._trust.answers.trust)

    async def _admit(
        self, tx: contract.Tx, *, knock: enroll_request.Enrolling
    ) -> tuple[enroll_decision.Ending, mesh.Answer | None]:
        """Decides; a node that is registered gets its place in the mesh in the same transaction."""
        ending = await self._decider.admit(tx, knock=knock)
        if self._places is None or not isinstance(ending, register.Registered):
            return ending, None
        place = await self._places.at_enrollment(
            tx, registered=ending, public_key=knock.mesh_public_key, now=self._clock.now()
        )
        return ending, place

    async def _welcome(
        self,
        registered: register.Registered,
        *,
        knock: enroll_request.Enrolling,
        place: mesh.Answer | None,
    ) -> DoorAnswer:
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
                gateway_url=self._gateway_for(knock.ticket),
                more=None if place is None else place.to_wire(),
            ),
        )

    def _gateway_for(self, ticket: enrollment.Ticket | None) -> str | None:
        if ticket is None or self._gateway_near is None or self._trust is None:
            return None
        shown = admission.read(
            ticket,
            trust_keys=tuple(self._trust.published.statement.trust_keys),
            now=self._clock.now(),
        )
        return None if shown.document is None else self._gateway_near(shown.document.url)

    def _tell_operation(self) -> None:
        """Its reconciler is to look now: the rows that it goes by have changed."""
        if self._ordered_changed is not None:
            self._ordered_changed()

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
        node_id, version = salvage.read(body[: enroll_request.MAX_BODY])

        async def work(tx: contract.Tx) -> None:
            await attempts.record(
                tx,
                outcome=attempts.Outcome.INVALID,
                reason=enroll_request.fault_of(refusal),
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


def limited(seconds: int, *, request_id: str) -> DoorAnswer:
    """429 with the wait in header and body."""
    return _problem(
        "too-many",
        "Too many failed attempts; try again later.",
        request_id=request_id,
        retry_after_seconds=seconds,
    )


def _not_yet(ending: admission.Reported | admission.NotYet, *, request_id: str) -> DoorAnswer:
    """204 for what was written down; 503 where the provider has to be asked first."""
    if isinstance(ending, admission.Reported):
        return DoorAnswer(status=204, body=b"")
    return _problem(
        "provider-unavailable",
        "The provider's view of this machine is not known yet; ask again.",
        request_id=request_id,
        retry_after_seconds=ending.retry_after_seconds,
    )


def _worker_newer(ending: endings.WorkerNewer, *, request_id: str) -> DoorAnswer:
    return _problem(
        "worker-newer",
        f"This machine runs Enlist {ending.machine_version}, the Platform "
        f"{ending.platform_version}. Update the Platform; the token stays good until then.",
        request_id=request_id,
        members={
            "worker_version": ending.machine_version,
            "platform_version": ending.platform_version,
        },
    )


def _problem(
    code: str,
    detail: str,
    *,
    request_id: str,
    members: Mapping[str, Any] | None = None,
    retry_after_seconds: int | None = None,
) -> DoorAnswer:
    problem = problems.Problem(
        code=code,
        detail=detail,
        request_id=request_id,
        retry_after=retry_after_seconds,
        fields=dict(members or {}),
    )
    return DoorAnswer(
        status=problem.meaning.status,
        body=problem.to_json(),
        media_type=problems.MEDIA_TYPE,
        retry_after_seconds=retry_after_seconds,
    )


REFUSED: Final = _problem(endings.CODE, endings.DETAIL, request_id="")
"""The uniform refusal. No id of its own: whatever differed could be told apart."""


def _is_empty_object(body: bytes) -> bool:
    try:
        return bool(json.loads(body) == {})
    except (ValueError, RecursionError):
        return False
