"""What root knows of the join it began, from the token it typed: the measure of what is offered.

The Agent's folder shows what the Agent's account likes. So root writes down which node is joining
and which trust keys the join token names, and a set is believed only where one of those signed it.
Known limit: an enrollment token typed with an address names no keys. Then the set is believed as
the join brought it, and only where this helper has never believed anybody: nothing has run as the
account yet.
"""

import dataclasses
from collections.abc import Iterable

from root_helper import places as places_kit
from root_helper import trusted
from wire_protocol import ids, statements, strict_json, trust

_MOST_KEYS = 64


class NotExpected(Exception):
    """It is not what root joined; the message says in what."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """`node_id` is None, and the keys are none, where the token does not name them."""

    node_id: ids.NodeId | None = None
    trust_key_ids: tuple[ids.KeyId, ...] = ()


def write(places: places_kit.Places, expected: Expected) -> None:
    """Root joins now."""
    places_kit.write(
        places.join_by_root,
        {"node_id": expected.node_id, "trust_key_ids": list(expected.trust_key_ids)},
    )


def read(places: places_kit.Places) -> Expected | None:
    """What root joins; None where it does not. Raises `Damaged`."""
    fields = places_kit.read(places.join_by_root)
    if fields is None:
        return None
    try:
        with strict_json.judged():
            node_id = fields.text("node_id", most=64) if fields.has("node_id") else None
            return Expected(
                node_id=None if node_id is None else ids.parse_node_id(node_id),
                trust_key_ids=_key_ids(fields.texts("trust_key_ids", most=_MOST_KEYS)),
            )
    except strict_json.Malformed as error:
        raise places_kit.Damaged(
            f"{places.join_by_root} is damaged: {error} Join again as root."
        ) from error


def require(expected: Expected, offered: trusted.Known, *, is_first: bool) -> None:
    """That this is what root joined; raises `NotExpected`."""
    if expected.node_id not in (None, offered.node_id):
        raise NotExpected(f"It is of node {offered.node_id}, and root joined {expected.node_id}.")
    if not expected.trust_key_ids and not is_first:
        raise NotExpected(
            "Only a join token names the trust keys by which a machine that has joined before is "
            "told of others: sudo enlist worker join -"
        )
    answer = statements.TrustAnswer(present=offered.held.signed, chain=())
    try:
        trust.accept_first(answer, trust_key_ids=expected.trust_key_ids)
    except trust.Refused as error:
        raise NotExpected(str(error)) from error


def _key_ids(texts: Iterable[str]) -> tuple[ids.KeyId, ...]:
    return tuple(ids.parse_key_id(one) for one in texts)
