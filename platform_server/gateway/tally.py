"""How often one node may have this engine write, or tell of it: in memory, and little of that."""

from typing import Final

from wire_protocol import ids

_MINUTE: Final = 60.0
_MOST_NODES: Final = 1024


class Tally:
    """So many a minute of one node, of what writes; forgotten with the minute."""

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


class Seldom:
    """Once in so many seconds of one node, of what is told; with very many nodes none but those."""

    def __init__(self, *, seconds: float, most_nodes: int = _MOST_NODES) -> None:
        self._seconds = seconds
        self._most_nodes = most_nodes
        self._last: dict[ids.NodeId, float] = {}  # the oldest first

    def take(self, node_id: ids.NodeId, *, now: float) -> bool:
        """Whether it is to be told now. `now` is monotonic."""
        while self._last:
            oldest = next(iter(self._last))
            if now - self._last[oldest] < self._seconds:
                break
            del self._last[oldest]
        if node_id in self._last or len(self._last) >= self._most_nodes:
            return False
        self._last[node_id] = now
        return True
