"""What a session is for: orders, and with each opening the question of the node's mesh place."""

from worker_agent.mesh import keeper
from worker_agent.session import outside


class WorkAndMesh:
    """A `session.outside.Work` that tells the mesh of each opening, too."""

    def __init__(self, work: outside.Work, *, mesh: keeper.Keeper) -> None:
        self._work = work
        self._mesh = mesh

    async def take(self, order: bytes) -> bytes:
        """Takes an order; raises `links.Refusal`."""
        return await self._work.take(order)

    def session_opened(self, ask: outside.Asker) -> None:
        """Both may ask from now on."""
        self._work.session_opened(ask)
        self._mesh.session_opened(ask)

    def session_closed(self) -> None:
        """Neither may, until a session opens again."""
        self._work.session_closed()
        self._mesh.session_closed()
