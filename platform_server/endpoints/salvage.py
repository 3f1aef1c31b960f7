"""What the audit may keep of a misshapen enroll request: what is well formed by itself, no more."""

import json

from wire_protocol import ids, versions


def read(body: bytes) -> tuple[str | None, str | None]:
    """Node id and version of a misshapen request, each only if it is well formed."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return None, None
    if not isinstance(content, dict):
        return None, None
    node_id, version = content.get("node_id"), content.get("version")
    try:
        kept_id = ids.parse_node_id(node_id) if isinstance(node_id, str) else None
    except ValueError:
        kept_id = None
    try:
        kept_version = version if isinstance(version, str) and versions.parse(version) else None
    except ValueError:
        kept_version = None
    return kept_id, kept_version
