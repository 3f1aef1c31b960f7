"""What an Agent asks of the root helper on its own machine, and what the helper answers.

One connection carries one request: a JSON line with the verb, for an order its exact bytes and
signatures, and for an update the archive as an open file beside it (SCM_RIGHTS). The answer is one
JSON line. `trust` passes the answer to the trust question as such a file, since it may be long.
After `staged` the helper waits until the Agent has closed the connection, since it restarts the
Agent next, and an Agent first writes down what it was told.

Only the form. Who may ask, and whether the order is the Platform's, the helper judges by itself.
"""

import base64
import dataclasses
import enum
from typing import Final

from wire_protocol import orders, statements, strict_json

SOCKET: Final = "/run/enlist-helper.sock"
MAX_LINE_BYTES: Final = 65_536
_LONGEST_DETAIL: Final = 1024


class Verb(enum.StrEnum):
    """All that the helper does."""

    UPDATE = "update"
    ROLL_BACK = "roll-back"
    TRUST = "trust"
    MESH_UP = "mesh-up"
    MESH_DOWN = "mesh-down"
    STATUS = "status"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """The release is in its place, and becomes the one that runs once the connection is closed."""

    release: str


class Refused(Exception):
    """The helper does not do it; the message is the helper's own."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail or code)
        self.code = code


def write_order(verb: Verb, signed: orders.SignedOrder) -> bytes:
    """The line that hands a signed order over."""
    line = strict_json.write(
        {
            "verb": verb.value,
            "order": base64.b64encode(signed.content).decode(),
            "signatures": statements.signatures_to_wire(signed.signatures),
        }
    )
    if len(line) >= MAX_LINE_BYTES:
        raise strict_json.Malformed("The order is too long for the root helper.")
    return line + b"\n"


def parse_verb(line: bytes) -> tuple[Verb, strict_json.Fields]:
    """What is asked for, and the other fields; raises `strict_json.Malformed`."""
    fields = strict_json.read(line, what="request", most=MAX_LINE_BYTES)
    with strict_json.judged():
        return Verb(fields.text("verb", most=32)), fields


def parse_order(fields: strict_json.Fields) -> orders.SignedOrder:
    """The order of a request; raises `strict_json.Malformed`."""
    return orders.SignedOrder(
        content=fields.raw("order", most=MAX_LINE_BYTES),
        signatures=statements.parse_signatures(fields),
    )


def write_staged(release: str) -> bytes:
    """The line that says so."""
    return strict_json.write({"state": "staged", "release": release}) + b"\n"


def write_refusal(code: str, detail: str) -> bytes:
    """The line that refuses."""
    return strict_json.write({"error": code[:64], "detail": detail[:_LONGEST_DETAIL]}) + b"\n"


def parse_staged(line: bytes) -> Staged:
    """Reads the answer to an order; raises `Refused` and `strict_json.Malformed`."""
    fields = read_answer(line)
    if fields.text("state", most=32) != "staged":
        raise strict_json.Malformed("answer.state must be 'staged'.")
    return Staged(release=fields.text("release", most=80))


def write_question(verb: Verb) -> bytes:
    """The line of a verb that says nothing beside its name; `trust` passes a file."""
    return write_line({"verb": verb.value})


def write_done(state: str) -> bytes:
    """The line that says so."""
    return write_line({"state": state})


def parse_done(line: bytes, *, state: str) -> None:
    """Reads that answer; raises `Refused` and `strict_json.Malformed`."""
    if read_answer(line).text("state", most=32) != state:
        raise strict_json.Malformed(f"answer.state must be {state!r}.")


def read_answer(line: bytes) -> strict_json.Fields:
    """The fields of an answer; raises `Refused` where it refuses, and `strict_json.Malformed`."""
    fields = strict_json.read(line, what="answer", most=MAX_LINE_BYTES)
    if fields.has("error"):
        detail = fields.text("detail", most=_LONGEST_DETAIL) if fields.has("detail") else ""
        raise Refused(fields.text("error", most=64), detail)
    return fields


def write_line(content: dict[str, object]) -> bytes:
    """One request or answer as it crosses the socket."""
    return strict_json.write(content) + b"\n"
