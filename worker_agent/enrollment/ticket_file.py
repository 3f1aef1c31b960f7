"""The ticket of an ordered machine, as its first boot hands it to the join.

A JSON file of root's: the signed document as it came, and beside it what the machine's metadata
service says of it. The document takes the place of a join token; the Platform judges it, not us.
"""

import dataclasses
import re
from typing import Final

from wire_protocol import join_token, strict_json, tickets

MAX_BYTES: Final = 16_384
_MOST_INSTANCE: Final = 16
_NAME: Final = re.compile(r"[a-z_]{1,32}")
_MOST_VALUE: Final = 256


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Presented:
    """What is sent beside the request: the ticket to the letter, and the machine's own word."""

    ticket: tickets.Ticket = dataclasses.field(repr=False)
    instance: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TicketFile:
    """A file, read."""

    presented: Presented
    join: join_token.JoinToken = dataclasses.field(repr=False)


def parse(text: str) -> TicketFile:
    """Reads the file; raises `ValueError`, which repeats nothing of it."""
    fields = strict_json.read(text.encode(), what="the ticket", most=MAX_BYTES)
    ticket = tickets.of_fields(fields)
    document = tickets.read_document(ticket.content)
    return TicketFile(
        presented=Presented(ticket=ticket, instance=_instance(fields)),
        join=join_token.JoinToken(
            url=document.url,
            node_id=document.node_id,
            token=document.token,
            pins=document.pins,
            trust_key_ids=document.trust_key_ids,
            expires_at=document.expires_at,
        ),
    )


def _instance(fields: strict_json.Fields) -> dict[str, str]:
    if not fields.has("instance"):
        return {}
    found = fields.value("instance")
    if (
        not isinstance(found, dict)
        or len(found) > _MOST_INSTANCE
        or not all(
            isinstance(key, str)
            and _NAME.fullmatch(key)
            and isinstance(value, str)
            and len(value) <= _MOST_VALUE
            for key, value in found.items()
        )
    ):
        raise strict_json.Malformed("ticket.instance must be a few short texts.")
    return found
