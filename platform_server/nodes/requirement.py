"""What an otherwise good answer of a node may still lack for `ready`; stages above say what.

One rule for every channel: whoever turns an answer into `states.Event.ANSWER` asks first, and takes
what is lacking for a `MISS` with that reason.
"""

from collections.abc import Callable

from wire_protocol import ids

Requirement = Callable[[ids.NodeId], str | None]
"""The reason, as `nodes list` shows it; None where nothing is lacking. Asks nobody, waits never."""


def nothing(node_id: ids.NodeId) -> str | None:
    """Nothing else is required of any node."""
    del node_id
    return None
