"""Whether an order is to be carried out here: bytes in, verdict out, nothing changed.

The order's signature, Platform, node, end and number are judged as the Agent judges them
(`wire_protocol.orders.judge`), by the helper's own trust set and its own last number; who asks, and
what the Agent thinks of it, decides nothing.
"""

import datetime
import hashlib

from root_helper import last_order, refusals, trusted
from wire_protocol import helper_protocol as helper
from wire_protocol import orders, strict_json, updates, versions

_KINDS = {helper.Verb.UPDATE: orders.Kind.UPDATE, helper.Verb.ROLL_BACK: orders.Kind.ROLL_BACK}


def judge(
    signed: orders.SignedOrder,
    *,
    verb: helper.Verb,
    known: trusted.Known,
    last: last_order.LastOrder | None,
    now: datetime.datetime,
) -> orders.Order:
    """The order, if it is one for here, now, and for this verb; raises `Refused`."""
    statement = known.held.statement
    floor = (0, 0) if last is None else last.number
    if last is not None and last.is_repeated_by(digest(signed)):
        floor = (last.number[0], last.number[1] - 1)
    try:
        order = orders.judge(
            signed,
            platform_id=known.platform_id,
            node_id=known.node_id,
            trust_keys=statement.trust_keys,
            last=max(floor, (statement.epoch, 0)),
            now=now,
        )
    except orders.NotSigned as error:
        raise refusals.Refused(refusals.Code.NOT_SIGNED, str(error)) from error
    except orders.Refused as error:
        raise refusals.Refused(refusals.Code.REFUSED, str(error)) from error
    if order.kind != _KINDS[verb]:
        raise refusals.Refused(
            refusals.Code.REFUSED, f"The order says {order.kind!r}, and {verb.value} was asked for."
        )
    return order


def update_of(order: orders.Order, *, current: str | None) -> updates.Update:
    """What it updates to: nothing older than what runs; raises `Refused`."""
    try:
        wanted = updates.parse_update(order.content)
    except strict_json.Malformed as error:
        raise refusals.Refused(refusals.Code.MALFORMED, str(error)) from error
    if current is not None and versions.is_newer(
        updates.version_of_release(current), wanted.version
    ):
        raise refusals.Refused(
            refusals.Code.OLDER,
            f"{wanted.version} is older than {current}, which runs here. An update never goes "
            "back; a roll-back does.",
        )
    return wanted


def require_roll_back(order: orders.Order) -> None:
    """That it says nothing beside its kind; raises `Refused`."""
    try:
        updates.require_roll_back(order.content)
    except strict_json.Malformed as error:
        raise refusals.Refused(refusals.Code.MALFORMED, str(error)) from error


def digest(signed: orders.SignedOrder) -> str:
    """By which an order is known again."""
    return hashlib.sha256(signed.content).hexdigest()
