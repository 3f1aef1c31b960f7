"""Ids as types, and the one reader for the ids that people type.

The node id comes from the token, never from the hostname, the machine-id or the firmware.
"""

import re
from typing import NewType

NodeId = NewType("NodeId", str)
AgentId = NewType("AgentId", str)
EnrollmentId = NewType("EnrollmentId", str)
KeyId = NewType("KeyId", str)
PlatformId = NewType("PlatformId", str)

NODE_ID_PATTERN = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
NODE_ID_AS_TYPED = r"^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?[.]?$"
"""What `parse_node_id` takes, as a pattern for documents."""
_NODE_ID = re.compile(NODE_ID_PATTERN)
_KEY_ID = re.compile(r"[0-9a-f]{16}")
_LONGEST_SHOWN = 80


def parse_node_id(text: str) -> NodeId:
    """Reads a node id: case does not count, one trailing dot is dropped (RFC 1123 label).

    Raises `ValueError` with the fault and the right form.
    """
    candidate = text.removesuffix(".").lower() if text.isascii() else text
    if not _NODE_ID.fullmatch(candidate):
        shown = text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
        raise ValueError(
            f"The node id {shown!r} is not well formed: use 1 to 63 letters a-z, digits and "
            "hyphens, with no hyphen first or last, for example web-1."
        )
    return NodeId(candidate)


def agent_id_of(node_id: NodeId) -> AgentId:
    """The id of the Agent on that node."""
    return AgentId(f"agent-{node_id}")


def parse_key_id(text: str) -> KeyId:
    """Reads a trust key's id: 16 hex digits; raises `ValueError` otherwise."""
    if not _KEY_ID.fullmatch(text):
        raise ValueError("A trust key id is 16 lower-case hex digits.")
    return KeyId(text)
