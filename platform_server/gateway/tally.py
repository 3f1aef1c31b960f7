"""So many a minute of one node, of what writes: in memory, forgotten with the minute."""

from wire_protocol import ids

_MINUTE = 60.0


class Tally:
    """A count a minute per node."""

    def __init__(self, *, most: int) -> None:
        self._most = most
        self._minute = -1
        self._taken: dict[ids.NodeId, int] = {}

    def take(self, node_id: ids.NodeId, *, now: float) -> bool:
        """Takes one; False where none is left in this minute. `now` is monotonic."""
        minute = int(now // _MINUTE)
        if minute != self._minute:
            self._minute = minute
            self._taken.clear()
        taken = self._taken.get(node_id, 0)
        if taken >= self._most:
            return False
        self._taken[node_id] = taken + 1
        return True
