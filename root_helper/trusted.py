"""Whom the helper believes: a trust set of its own, and which node of which Platform this is.

Seeded once, when root joins the machine; from then on only a statement signed by a key that it
holds replaces it (the verdict is `wire_protocol.trust`, the machine's own). The Agent's trust set
is never read: whoever takes the Agent could write it.
"""

import base64
import dataclasses
import datetime

from root_helper import places as places_kit
from root_helper import refusals
from wire_protocol import ids, statements, strict_json, trust


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The set, and the node."""

    node_id: ids.NodeId
    held: trust.Held

    @property
    def platform_id(self) -> ids.PlatformId:
        """The one Platform whose orders count."""
        return self.held.statement.platform_id


def find(places: places_kit.Places) -> Known | None:
    """What is believed; None before the first join by root. Raises `Damaged`."""
    fields = places_kit.read(places.trust)
    if fields is None:
        return None
    try:
        signed = statements.parse_signed(fields)
        held = trust.Held(signed=signed, statement=statements.parse_statement(signed.content))
        with strict_json.judged():
            return Known(node_id=ids.parse_node_id(fields.text("node_id", most=64)), held=held)
    except strict_json.Malformed as error:
        raise places_kit.Damaged(
            f"{places.trust} is damaged: {error} Remove it, and join again as root."
        ) from error


def get(places: places_kit.Places) -> Known:
    """What is believed; raises `Refused`."""
    try:
        known = find(places)
    except places_kit.Damaged as error:
        raise refusals.Refused(refusals.Code.NO_TRUST, str(error)) from error
    if known is None:
        raise refusals.Refused(
            refusals.Code.NO_TRUST,
            "The root helper of this machine does not know its Platform yet. Join as root: "
            "sudo enlist worker join -",
        )
    return known


def write(places: places_kit.Places, known: Known) -> None:
    """Replaces it in one step."""
    places_kit.write(
        places.trust,
        {
            "node_id": known.node_id,
            "statement": base64.b64encode(known.held.signed.content).decode(),
            "signatures": statements.signatures_to_wire(known.held.signed.signatures),
        },
    )


def advance(
    places: places_kit.Places, answer: statements.TrustAnswer, *, now: datetime.datetime
) -> Known:
    """Takes a newer set if a key that is held signed it; raises `Refused`."""
    known = get(places)
    try:
        held = trust.accept(known.held, answer, now=now)
    except trust.Refused as error:
        raise refusals.Refused(refusals.Code.NOT_SIGNED, str(error)) from error
    if held is known.held:
        return known
    newer = dataclasses.replace(known, held=held)
    write(places, newer)
    return newer
