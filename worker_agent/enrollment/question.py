"""Sends the enroll request until it is answered, for a bounded time.

A lost answer is not a special case: the same request with the same key and token gets the same
answer. Transient faults are tried again with full jitter for at most `platform.PATIENCE_SECONDS`,
of which each try gets what is left, since a network that swallows everything says nothing; then the
command ends with 75, and whoever called it (a person, a first-boot unit) decides about more.
"""

import datetime
import json

from runtime_kit import crash_points, pinned_handshake, retry, server_trust
from runtime_kit import failures as network
from wire_protocol import product, times
from worker_agent.door import platform, refusals
from worker_agent.enrollment import answers, plan, surroundings
from worker_agent.identity import own
from worker_agent.settings import failures

PROVED = crash_points.declare(
    "join.platform-proved", story="The Platform is authenticated; the token has not left."
)
ANSWERED = crash_points.declare(
    "join.answered", story="The Platform has enrolled the machine; nothing is written yet."
)

SCHEDULE = retry.Schedule(first_seconds=1.0, cap_seconds=8.0)
NOTABLE_OFFSET = datetime.timedelta(seconds=5)  # below, the Date header's own second disturbs


async def enroll(
    planned: plan.Join,
    *,
    identity: own.Identity,
    around: surroundings.Surroundings,
    mesh_public_key: str | None = None,
) -> platform.Answer:
    """The Platform's answer, a success; raises the `Failure` that its refusal or silence means."""
    body = request_body(planned, identity=identity, mesh_public_key=mesh_public_key)
    started = around.clock.monotonic()
    for tries, wait in enumerate(SCHEDULE.waits(chance=around.chance), start=1):
        try:
            left = platform.PATIENCE_SECONDS - (around.clock.monotonic() - started)
            return await _try(planned, body=body, around=around, within_s=left)
        except failures.Temporary as failure:
            asked = failure.retry_after if isinstance(failure, TryLater) else None
            owed = max(wait, asked or 0.0)
            spent = around.clock.monotonic() - started
            if spent + owed >= platform.PATIENCE_SECONDS:
                raise failures.Temporary(
                    f"{failure.message} Gave up after {tries} "
                    f"{'try' if tries == 1 else 'tries'} in {spent:.0f} s.",
                    hint="Nothing is lost: run the same command again.",
                ) from failure
            around.say(f"{failure.message} Trying again in {owed:.1f} s.")
            await around.clock.sleep(owed)
    raise AssertionError("the schedule has no end")


def request_body(
    planned: plan.Join, *, identity: own.Identity, mesh_public_key: str | None = None
) -> bytes:
    """The enroll request; the only place where the token is written out."""
    document: dict[str, object] = {
        "node_id": planned.node_id,
        "token": planned.token.text(),
        "certificate_pem": identity.certificate_pem,
        "version": product.VERSION,
    }
    if planned.agent_origin is not None:
        document["url"] = planned.agent_origin
    if planned.labels:
        document["reported_labels"] = planned.labels
    if mesh_public_key is not None:
        document["mesh_public_key"] = mesh_public_key
    if planned.presented is not None:
        document["ticket"] = planned.presented.ticket.to_wire()
        if planned.presented.instance:
            document["instance"] = planned.presented.instance
    return json.dumps(document).encode()


async def _try(
    planned: plan.Join, *, body: bytes, around: surroundings.Surroundings, within_s: float
) -> platform.Answer:
    question = platform.Question(path=product.ENROLL_PATH, body=body, max_bytes=answers.MAX_BYTES)
    trust = server_trust.ServerTrust(
        pins=frozenset(str(pin) for pin in planned.pins), ca_pem=planned.ca_pem
    )

    def on_proved(leaf: pinned_handshake.Leaf) -> None:
        _warn_of_dates(leaf, planned=planned, around=around)
        crash_points.reach(PROVED)

    try:
        answer = await platform.ask(
            planned.url,
            question=question,
            trust=trust,
            clock=around.clock,
            within_s=within_s,
            environment=around.environment,
            on_proved=on_proved,
        )
    except network.NetworkFailure as error:
        raise refusals.of_network(error, hint=_hint(error, planned=planned)) from error
    if not refusals.is_success(answer.status):
        raise _refusal(answer, planned=planned, now=around.clock.now())
    crash_points.reach(ANSWERED)
    ahead = answer.clock_ahead
    if ahead is not None and abs(ahead) > NOTABLE_OFFSET:
        around.warn(f"{_told(ahead)} The node list shows it; set this machine's clock.")
    return answer


class TryLater(failures.Temporary):
    """The Platform asks for patience; `retry_after` is in seconds."""

    def __init__(self, message: str, *, retry_after: float | None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


def _refusal(
    answer: platform.Answer, *, planned: plan.Join, now: datetime.datetime
) -> failures.Failure:
    failure = refusals.of_answer(
        answer.status, answer.body, where=planned.url, location=answer.location
    )
    ask_again = f"enlist nodes enroll-token {planned.node_id} --replace"
    if isinstance(failure, failures.Temporary):
        return TryLater(failure.message, retry_after=answer.retry_after)
    if isinstance(failure, failures.Refused):
        return failures.Refused(
            "Enrollment refused.",
            hint=" ".join(
                [
                    *_expiry_hint(planned, now=now, ahead=answer.clock_ahead),
                    "The token may be used, withdrawn, expired, or bound to another address.",
                    f"Ask for a new one: {ask_again}",
                ]
            ),
        )
    if isinstance(failure, failures.NeedsOperator):
        return failures.NeedsOperator(
            failure.message,
            hint=f"The token is not spent. This machine has Enlist {product.VERSION}; update the "
            "Platform, or install the Platform's version here, then run: enlist worker join -",
        )
    return failure


def _expiry_hint(
    planned: plan.Join, *, now: datetime.datetime, ahead: datetime.timedelta | None
) -> list[str]:
    """A guess at the reason, from the join token's own expiry; the Platform's clock decides."""
    if planned.expires_at is None:
        return []
    theirs = now if ahead is None else now - ahead
    told = []
    if theirs > planned.expires_at:
        told.append(f"The join token expired at {times.to_rfc3339(planned.expires_at)}.")
    if ahead is not None and abs(ahead) > NOTABLE_OFFSET:
        told.append(_told(ahead))
    return told


def _told(ahead: datetime.timedelta) -> str:
    seconds = abs(ahead.total_seconds())
    side = "ahead of" if ahead > datetime.timedelta(0) else "behind"
    return f"This machine's clock is {seconds:.0f} s {side} the Platform's."


def _warn_of_dates(
    leaf: pinned_handshake.Leaf, *, planned: plan.Join, around: surroundings.Surroundings
) -> None:
    now = around.clock.now()
    if planned.pins and planned.ca_pem is None and not leaf.not_before <= now <= leaf.not_after:
        around.warn(
            "By this machine's clock the Platform's certificate is not valid now; its dates are "
            "not judged, because its key is the pinned one."
        )


def _hint(error: network.NetworkFailure, *, planned: plan.Join) -> str:
    if isinstance(error, pinned_handshake.PinMismatch):
        return (
            "Compare the pins on the Platform (enlist nodes platform) and "
            f"ask for a new join token: enlist nodes enroll-token {planned.node_id} --replace"
        )
    if isinstance(error, server_trust.ServerNotTrusted):
        return (
            "Give the right --platform-ca-file, or the pin that the "
            "Platform shows: enlist nodes platform"
        )
    return "The token was not sent. Then run: enlist worker join -"
