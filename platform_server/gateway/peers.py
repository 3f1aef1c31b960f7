"""One connected machine as the gateway knows it, and the sessions of this engine by node.

Plain objects in memory, one a connection: small, since there are tens of thousands. Not for
deciding anything (`opening`), nor for the rows (`nodes.sessions`).
"""

import datetime
import enum
from collections.abc import Iterator, Sequence

from platform_server.gateway import anchors
from platform_server.nodes import heartbeats, states
from runtime_kit.mux import link as links
from wire_protocol import ids, pins, session


class Stage(enum.Enum):
    """How far a connection has come."""

    NEW = "new"  # the handshake is done; hello is awaited
    GREETING = "greeting"  # hello is being judged
    WELCOMED = "welcomed"  # the generation is given; its confirmation is awaited
    CONFIRMING = "confirming"
    ERRAND = "errand"  # renew, leave, and nothing else
    OPEN = "open"  # the node's session
    OVER = "over"


class Peer:
    """One connection. `proved` are the nodes whose certificate it has shown: usually one."""

    __slots__ = (
        "anchor",
        "asked_at",
        "beat_at",
        "capacity",
        "carries_work",
        "hello",
        "lacks",
        "link",
        "news",
        "proved",
        "session_id",
        "since",
        "stage",
        "started_at",
        "state",
        "version",
        "welcome",
    )

    def __init__(self, link: links.Link, *, proved: Sequence[anchors.Anchor], since: float) -> None:
        self.link = link
        self.proved = tuple(proved)
        self.since = since  # monotonic: when the present stage began
        self.stage = Stage.NEW
        self.anchor = self.proved[0]
        self.hello: session.Hello | None = None
        self.welcome: Welcomed | None = None
        self.session_id = ""
        self.started_at: datetime.datetime | None = None
        self.state: states.State | None = None  # of the node, as the store was last seen
        self.version = ""  # what the node's row says, to see what is news
        self.capacity = ""
        self.news: heartbeats.News | None = None
        self.asked_at = -1e9  # monotonic: the last health question
        self.beat_at = since  # monotonic: its last heartbeat, or since when one is awaited
        self.lacks: str | None = None  # what else it needs for `ready`, as it was last written
        self.carries_work = False  # it has answered as the node; the others were told

    def __repr__(self) -> str:
        return f"<Peer {self.node_id} at {self.address}, {self.stage.value}>"

    @property
    def node_id(self) -> ids.NodeId:
        """The node; before hello the first whose certificate it is."""
        return self.anchor.node_id

    @property
    def pin(self) -> pins.Pin:
        """The key that is proved."""
        return self.anchor.pin

    @property
    def address(self) -> str:
        """The other side's address, without its port."""
        return self.link.peer

    def move(self, stage: Stage, *, now: float) -> None:
        """Goes on to the next stage."""
        self.stage = stage
        self.since = now


class Welcomed:
    """What was granted and waits for its confirmation."""

    __slots__ = ("adopted_epoch", "former_generation", "generation", "replaces")

    def __init__(
        self,
        *,
        former_generation: int,
        generation: int,
        adopted_epoch: int | None,
        replaces: tuple[str, str] | None,
    ) -> None:
        self.former_generation = former_generation
        self.generation = generation
        self.adopted_epoch = adopted_epoch
        self.replaces = replaces  # engine and session that stood there


class Sessions:
    """The open sessions of this engine: one a node at most."""

    def __init__(self) -> None:
        self._by_node: dict[ids.NodeId, Peer] = {}

    def __len__(self) -> int:
        return len(self._by_node)

    def __iter__(self) -> Iterator[Peer]:
        return iter(tuple(self._by_node.values()))

    def find(self, node_id: ids.NodeId) -> links.Link | None:
        """The link of the node's open session, if it is held here."""
        found = self._by_node.get(node_id)
        return None if found is None or found.link.ended is not None else found.link

    def find_peer(self, node_id: ids.NodeId) -> Peer | None:
        """The node's session, if it is held here."""
        return self._by_node.get(node_id)

    def find_session(self, node_id: ids.NodeId, *, session_id: str) -> Peer | None:
        """That very session, if it is held here and open."""
        found = self._by_node.get(node_id)
        if found is None or found.session_id != session_id or found.link.ended is not None:
            return None
        return found

    def take_place(self, peer: Peer) -> Peer | None:
        """Puts the session in the node's place; gives the one that had it."""
        former = self._by_node.get(peer.node_id)
        self._by_node[peer.node_id] = peer
        return former

    def leave(self, peer: Peer) -> bool:
        """Takes it out; False where another has its place already."""
        if self._by_node.get(peer.node_id) is not peer:
            return False
        del self._by_node[peer.node_id]
        return True
