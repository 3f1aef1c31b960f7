"""Judges the answer to an enroll request. Pure: bytes in, verdict out.

The first trust set rests on the authenticated connection, and on the join token's key ids where it
names any. A machine that holds one believes what leads on from it and nothing else (rule 6),
whatever a join token says: its key ids are public. The generation and everything else count only if
the answer is for this very node.
"""

import dataclasses
import datetime
from typing import Final

from wire_protocol import ids, mesh, pins, statements, strict_json, trust
from worker_agent.enrollment import plan
from worker_agent.settings import failures, paths

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
    mesh: mesh.Answer


def judge(
    body: bytes, *, planned: plan.Join, where: paths.Paths, now: datetime.datetime
) -> Accepted:
    """Reads the body of a 200 or 201.

    Raises `Fault` when it is no enroll answer, and `NeedsOperator` when its trust set may not be
    believed.
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
            held=_trust_set(answer, planned=planned, where=where, now=now),
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
            mesh=mesh.answer_of(fields),
        )
    except ValueError as error:
        raise failures.Fault(
            f"{planned.url} answered with something that is no enrollment: {error}"
        ) from error
    return accepted


def _trust_set(
    answer: statements.TrustAnswer,
    *,
    planned: plan.Join,
    where: paths.Paths,
    now: datetime.datetime,
) -> trust.Held:
    """The first set by the connection and the join token's key ids, any later one by held keys."""
    if planned.held is None:
        try:
            return trust.accept_first(answer, trust_key_ids=planned.trust_key_ids)
        except trust.Refused as error:
            raise failures.NeedsOperator(
                f"The Platform's trust set is not believed: {error}",
                hint="Nothing was written. Run: enlist nodes enroll-token "
                f"{planned.node_id} --replace",
            ) from error
    try:
        return trust.accept(planned.held, answer, now=now)
    except trust.Refused as error:
        raise failures.NeedsOperator(
            "The Platform's trust set is not believed, because the one that this machine holds "
            f"does not lead to it: {error} Either {planned.url} is not the Platform that this "
            "machine joined, or that was rebuilt, or this machine was away for long.",
            hint="Nothing was written. Catch up first: enlist worker refresh-trust. If that is not "
            "believed either, and this machine is to join anew, move its data directory away on "
            f"purpose: mv {where.folder} {where.folder}.old",
        ) from error
