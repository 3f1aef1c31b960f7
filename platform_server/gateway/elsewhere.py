"""Sessions that another engine holds: asking whether their node answers, and ending them.

Engines tell one another by the store's signals, which may be lost: no word is not the word that a
node is silent, so a newcomer is then told to come again rather than let in. What must end and was
not heard of, its engine finds by itself at the next flush (`news`).
"""

import asyncio
import enum
import json
import secrets
from collections.abc import Awaitable, Callable
from typing import Final

from platform_server.store import contract
from wire_protocol import ids

CHANNEL: Final = "sessions"
ANSWER_SECONDS: Final = 7.0  # the other engine pings for 5 s


class Presence(enum.Enum):
    """What is known of a session that is held elsewhere."""

    ANSWERS = "answers"
    SILENT = "silent"
    UNKNOWN = "unknown"


Ping = Callable[[ids.NodeId, str], Awaitable[bool | None]]  # None: no such session here
End = Callable[[ids.NodeId, str], None]


class Elsewhere:
    """This engine's ear and voice among the engines."""

    def __init__(self, store: contract.Store, *, engine_id: str, ping: Ping, end: End) -> None:
        self._store = store
        self._engine_id = engine_id
        self._ping = ping
        self._end = end
        self._asked: dict[str, asyncio.Future[bool]] = {}
        self._answering: set[asyncio.Task[None]] = set()

    def start(self) -> Callable[[], None]:
        """Listens; gives what ends that."""
        return self._store.listen(CHANNEL, self._hear)

    async def ask(self, node_id: ids.NodeId, *, session_id: str, engine_id: str) -> Presence:
        """Whether that session's node answers."""
        number = secrets.token_hex(8)
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._asked[number] = future
        try:
            self._say(to=engine_id, kind="ping", node=node_id, session=session_id, number=number)
            async with asyncio.timeout(ANSWER_SECONDS):
                return Presence.ANSWERS if await future else Presence.SILENT
        except TimeoutError:
            return Presence.UNKNOWN
        finally:
            del self._asked[number]

    def end(self, node_id: ids.NodeId, *, session_id: str, engine_id: str) -> None:
        """That session was replaced: its engine closes it."""
        self._say(to=engine_id, kind="end", node=node_id, session=session_id)

    async def stop(self) -> None:
        """Gives up what is still being asked."""
        for task in self._answering:
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)

    def _say(self, *, to: str, **fields: str | bool) -> None:
        self._store.signal(CHANNEL, json.dumps({"to": to, "from": self._engine_id, **fields}))

    def _hear(self, payload: str) -> None:
        if not payload:  # something was missed: whoever asked comes again
            return
        said = json.loads(payload)
        if said["to"] != self._engine_id:
            return
        if said["kind"] == "end":
            self._end(ids.NodeId(said["node"]), said["session"])
        elif said["kind"] == "ping":
            task = asyncio.get_running_loop().create_task(
                self._answer(said), name=f"session asked for by {said['from']}"
            )
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)
        elif (future := self._asked.get(said["number"])) is not None and not future.done():
            future.set_result(said["answers"])

    async def _answer(self, said: dict[str, str]) -> None:
        answers = await self._ping(ids.NodeId(said["node"]), said["session"])
        self._say(to=said["from"], kind="pong", number=said["number"], answers=bool(answers))
