"""Answers made ready once: the enroll answer's common part and the trust answer, as bytes.

A statement changes a few times a year and is asked for a thousand times a second, so its signing,
encoding and JSON happen when it changes and never in an enrollment.
"""

import dataclasses
import json
from collections.abc import Mapping

from platform_server.trust import statements
from wire_protocol import ids


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What one published statement makes of every answer."""

    published: statements.Published
    trust: bytes
    _enroll_tail: bytes
    _gateway: bytes

    def enroll(
        self,
        *,
        node_id: ids.NodeId,
        generation: int,
        reachable: bool | None = None,
        reachable_reason: str | None = None,
        gateway_url: str | None = None,
        more: Mapping[str, object] | None = None,
    ) -> bytes:
        """The answer to a machine that has enrolled. A node id needs no escaping in JSON.

        `gateway_url` is for a machine that reaches the gateway where no other does; `more` are
        fields that are this machine's alone.
        """
        head = (
            f'{{"node_id":"{node_id}","agent_id":"{ids.agent_id_of(node_id)}",'
            f'"generation":{generation},"gateway_url":'
        ).encode("ascii")
        head += self._gateway if gateway_url is None else _compact(gateway_url)
        head += b","
        own = dict(more or {})
        if reachable is not None:
            own |= {"reachable": reachable, "reachable_reason": reachable_reason}
        if not own:
            return head + self._enroll_tail + b"}"
        return head + self._enroll_tail + b"," + _compact(own)[1:]


def make(published: statements.Published) -> Answers:
    """Prepares the answers for this statement."""
    statement = published.statement
    common: dict[str, object] = {
        **published.signed.to_wire(),
        "trust_keys": [key.to_wire() for key in statement.trust_keys],
        "pins": list(statement.enrollment_pins),
        "gateway_pins": list(statement.gateway_pins),
    }
    trust = {**common, "chain": [stone.to_wire() for stone in published.chain]}
    return Answers(
        published=published,
        trust=_compact(trust),
        _enroll_tail=_compact(common)[1:-1],
        _gateway=_compact(statement.gateway_urls[0] if statement.gateway_urls else None),
    )


def _compact(content: object) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()
