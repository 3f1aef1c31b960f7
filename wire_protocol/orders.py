"""Orders: what the Platform tells one Agent to do, signed with a trust key over exact bytes.

The form alone, and the verdict whether one is this node's, in time, newer than the last and signed
by a key that is trusted now. Who keeps the last (epoch, sequence) is the Agent.

The answer to an order is empty once it has been taken, and its `Result` once that is known; the
same order may be handed over again, to ask for it.
"""

import base64
import dataclasses
import datetime
import enum
from collections.abc import Iterable, Mapping
from typing import Any

from wire_protocol import ids, signing, statements, strict_json, times

CONTEXT = "enlist-order-v1"
VERSION = 1
MAX_BYTES = 65_536
PATH = "/order"

INTERRUPTED = (
    "The Agent was stopped while it carried the order out; whether it took effect is not known. "
    "Look, and give it again if it is still wanted."
)
"""What an Agent says of an order that its own end cut short."""


class Kind(enum.StrEnum):
    """What can be ordered. An Agent refuses a kind that it does not know, and says so."""

    REFRESH_TRUST = "refresh-trust"  # ask for the trust set now
    RENEW = "renew"  # renew the node's certificate now
    UPDATE = "update"  # run another release from now on; see `updates` for its content
    ROLL_BACK = "roll-back"  # run the release before the present one again


class Refused(Exception):
    """The order is not to be carried out; the message says why."""


class NotSigned(Refused):
    """No trust key that is valid here and now signed the order: the trust set may be old."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One order for one node. `content` belongs to the kind."""

    platform_id: ids.PlatformId
    epoch: int
    sequence: int
    node_id: ids.NodeId
    agent_id: ids.AgentId
    expires_at: datetime.datetime
    kind: str
    content: Mapping[str, Any] = dataclasses.field(repr=False)

    @property
    def number(self) -> tuple[int, int]:
        """What orders orders: one is never carried out after a later one was taken."""
        return self.epoch, self.sequence

    def to_bytes(self) -> bytes:
        """The exact bytes to sign and send."""
        return strict_json.write(
            {
                "platform_id": self.platform_id,
                "epoch": self.epoch,
                "sequence": self.sequence,
                "node_id": self.node_id,
                "agent_id": self.agent_id,
                "expires_at": times.to_rfc3339(self.expires_at),
                "kind": self.kind,
                "version": VERSION,
                "content": dict(self.content),
            }
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SignedOrder:
    """An order's exact bytes with the signatures over them."""

    content: bytes = dataclasses.field(repr=False)
    signatures: tuple[statements.Signature, ...]

    def to_bytes(self) -> bytes:
        """The body as it crosses the wire."""
        return strict_json.write(
            {
                "order": base64.b64encode(self.content).decode(),
                "signatures": statements.signatures_to_wire(self.signatures),
            }
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What became of an order that was taken: `done` or `failed`, and a sentence."""

    epoch: int
    sequence: int
    is_done: bool
    detail: str = ""

    def to_bytes(self) -> bytes:
        """The body as it crosses the wire."""
        return strict_json.write(
            {
                "epoch": self.epoch,
                "sequence": self.sequence,
                "done": self.is_done,
                "detail": self.detail[:1024],
            }
        )


def parse_signed(raw: bytes) -> SignedOrder:
    """Reads the envelope; raises `strict_json.Malformed`."""
    fields = strict_json.read(raw, what="order", most=2 * MAX_BYTES)
    return SignedOrder(
        content=fields.raw("order", most=MAX_BYTES), signatures=statements.parse_signatures(fields)
    )


def parse_result(raw: bytes) -> Result:
    """Reads what became of an order; raises `strict_json.Malformed`."""
    fields = strict_json.read(raw, what="result", most=MAX_BYTES)
    return Result(
        epoch=fields.integer("epoch"),
        sequence=fields.integer("sequence"),
        is_done=fields.boolean("done"),
        detail=fields.text("detail", most=1024),
    )


def write_refusal(code: str, detail: str) -> bytes:
    """How an Agent that listens refuses an order, with status 409; a session has its own form."""
    return strict_json.write({"code": code, "detail": detail[:1024]})


def parse_refusal(raw: bytes) -> tuple[str, str]:
    """Code and sentence; both empty where it is none."""
    try:
        fields = strict_json.read(raw, what="refusal", most=MAX_BYTES)
        return fields.text("code", most=64), fields.text("detail", most=1024)
    except strict_json.Malformed:
        return "", ""


def judge(
    signed: SignedOrder,
    *,
    platform_id: ids.PlatformId,
    node_id: ids.NodeId,
    trust_keys: Iterable[statements.TrustKey],
    last: tuple[int, int],
    now: datetime.datetime,
) -> Order:
    """The order, if it is to be carried out; raises `Refused`.

    The signature comes first: nothing that an unproved text says is read before it.
    """
    order = read_signed(signed, trust_keys=trust_keys, now=now)
    if order.platform_id != platform_id:
        raise Refused("The order is another Platform's.")
    if order.node_id != node_id or order.agent_id != ids.agent_id_of(node_id):
        raise Refused("The order is for another node.")
    if order.expires_at <= now:
        raise Refused(f"The order expired at {times.to_rfc3339(order.expires_at)}.")
    if order.number <= last:
        raise Refused(f"The order {order.number} is not newer than {last}, which was taken.")
    return order


def read_signed(
    signed: SignedOrder,
    *,
    trust_keys: Iterable[statements.TrustKey],
    now: datetime.datetime,
) -> Order:
    """What the order says, once it is known to be the Platform's; raises as `judge` does."""
    if not _is_signed(signed, trust_keys=trust_keys, now=now):
        raise NotSigned("No trust key that is valid now and held here signed the order.")
    try:
        return _parse(signed.content)
    except strict_json.Malformed as fault:
        raise Refused(f"The order cannot be read: {fault}") from fault


def _is_signed(
    signed: SignedOrder, *, trust_keys: Iterable[statements.TrustKey], now: datetime.datetime
) -> bool:
    valid = {key.key_id: key for key in trust_keys if key.is_valid_at(now)}
    return any(
        one.key_id in valid
        and signing.is_signed_by(
            valid[one.key_id].public_key, signed.content, signature=one.signature, context=CONTEXT
        )
        for one in signed.signatures
    )


def _parse(raw: bytes) -> Order:
    fields = strict_json.read(raw, what="order", most=MAX_BYTES)
    if fields.integer("version") != VERSION:
        raise strict_json.Malformed(f"order.version must be {VERSION}.")
    content = fields.value("content")
    if not isinstance(content, dict):
        raise strict_json.Malformed("order.content must be a JSON object.")
    with strict_json.judged():
        return Order(
            platform_id=ids.PlatformId(fields.text("platform_id", most=64)),
            epoch=fields.integer("epoch"),
            sequence=fields.integer("sequence"),
            node_id=ids.parse_node_id(fields.text("node_id", most=64)),
            agent_id=ids.AgentId(fields.text("agent_id", most=80)),
            expires_at=fields.moment("expires_at"),
            kind=fields.text("kind", most=64),
            content=content,
        )
