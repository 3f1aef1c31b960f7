"""Judges the answer to an enroll request. Pure: bytes in, verdict out.

The first trust set rests on the authenticated connection, and on the join token's key ids where it
names any. The generation and everything else count only if the answer is for this very node.
"""

import dataclasses
import datetime
from typing import Final

from wire_protocol import ids, pins, statements, strict_json, trust
from worker_agent.enrollment import plan
from worker_agent.settings import failures

MAX_BYTES: Final = statements.MAX_ANSWER_BYTES
_MOST_PINS = 16
_LONGEST_REASON = 300


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """What the machine takes over."""

    generation: int
    held: trust.Held
    gateway_url: str | None
    gateway_pins: tuple[pins.Pin, ...]
    reachable: bool | None
    reachable_reason: str | None


def judge(body: bytes, *, planned: plan.Join, now: datetime.datetime) -> Accepted:
    """Reads the body of a 200 or 201.

    Raises `Fault` when it is no enroll answer, `NeedsOperator` when its trust set may not be
    believed, and `Conflict` when it is another Platform's than the one this machine belongs to.
    """
    try:
        fields = strict_json.read(body, what="answer", most=MAX_BYTES)
        node_id = fields.text("node_id", most=64)
        if node_id != planned.node_id or fields.text("agent_id", most=80) != ids.agent_id_of(
            planned.node_id
        ):
            raise failures.Fault(
                f"{planned.url} answered for node {node_id!r} and not for {planned.node_id}."
            )
        answer = statements.parse_answer(body)
        accepted = Accepted(
            generation=fields.integer("generation"),
            held=_trust_set(answer, planned=planned, now=now),
            gateway_url=fields.text("gateway_url") if fields.has("gateway_url") else None,
            gateway_pins=tuple(
                pins.parse_pin(text) for text in fields.texts("gateway_pins", most=_MOST_PINS)
            ),
            reachable=fields.boolean("reachable") if fields.has("reachable") else None,
            reachable_reason=(
                fields.text("reachable_reason")[:_LONGEST_REASON]
                if fields.has("reachable_reason")
                else None
            ),
        )
    except ValueError as error:
        raise failures.Fault(
            f"{planned.url} answered with something that is no enrollment: {error}"
        ) from error
    return accepted


def _trust_set(
    answer: statements.TrustAnswer, *, planned: plan.Join, now: datetime.datetime
) -> trust.Held:
    try:
        if planned.held is None:
            return trust.accept_first(answer, trust_key_ids=planned.trust_key_ids)
        return _next_set(answer, held=planned.held, planned=planned, now=now)
    except trust.Refused as error:
        raise failures.NeedsOperator(
            f"The Platform's trust set is not believed: {error}",
            hint=f"Nothing was written. Run: enlist nodes enroll-token {planned.node_id} --replace",
        ) from error


def _next_set(
    answer: statements.TrustAnswer,
    *,
    held: trust.Held,
    planned: plan.Join,
    now: datetime.datetime,
) -> trust.Held:
    """On a machine that has joined before, the held keys judge, or else the new join token's."""
    try:
        return trust.accept(held, answer, now=now)
    except trust.Refused:
        if not planned.trust_key_ids:
            raise
        offered = trust.accept_first(answer, trust_key_ids=planned.trust_key_ids)
        if offered.statement.platform_id != held.statement.platform_id:
            raise failures.Conflict(
                f"{planned.url} is another Platform than the one this machine joined.",
                hint="Nothing was changed. To give up the old join, move its data directory away.",
            ) from None
        return offered
