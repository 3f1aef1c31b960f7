"""Engines that ask one another about sessions: words, and what silence is taken for."""

import asyncio
from collections.abc import Callable

import pytest

from platform_server.gateway import elsewhere
from platform_server.store import signals
from wire_protocol import ids

WEB = ids.NodeId("web-1")


class Wire:
    """The signals of a store, between engines in one process; some may be lost."""

    def __init__(self) -> None:
        self._hub = signals.Hub()
        self.said: list[str] = []
        self.loses = False

    def signal(self, channel: str, payload: str) -> None:
        signals.check_payload(payload)
        self.said.append(payload)
        if not self.loses:
            self._hub.tell(channel, payload)

    def listen(self, channel: str, listener: signals.Listener) -> signals.Cancel:
        return self._hub.add(channel, listener)


class Engine:
    """One engine's voice; `alive` are the sessions it holds, and whether they answer."""

    def __init__(self, wire: Wire, name: str) -> None:
        self.alive: dict[str, bool] = {}
        self.ended: list[str] = []
        self.voice = elsewhere.Elsewhere(
            wire,  # type: ignore[arg-type]
            engine_id=name,
            ping=self._ping,
            end=lambda _node_id, session_id: self.ended.append(session_id),
        )
        self.cancel: Callable[[], None] = self.voice.start()

    async def _ping(self, node_id: ids.NodeId, session_id: str) -> bool | None:
        assert node_id == WEB
        return self.alive.get(session_id)


async def ask(engine: Engine, session_id: str, *, of: str = "b") -> elsewhere.Presence:
    return await engine.voice.ask(WEB, session_id=session_id, engine_id=of)


async def test_the_engine_that_holds_a_session_says_whether_it_answers() -> None:
    wire = Wire()
    first, second, _third = Engine(wire, "a"), Engine(wire, "b"), Engine(wire, "c")
    second.alive = {"there": True, "silent": False}
    assert await ask(first, "there") is elsewhere.Presence.ANSWERS
    assert await ask(first, "silent") is elsewhere.Presence.SILENT
    assert await ask(first, "gone") is elsewhere.Presence.SILENT


async def test_no_word_is_not_the_word_that_a_node_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(elsewhere, "ANSWER_SECONDS", 0.02)
    wire = Wire()
    first = Engine(wire, "a")
    assert await ask(first, "there", of="nobody") is elsewhere.Presence.UNKNOWN
    second = Engine(wire, "b")
    second.alive = {"there": True}
    wire.loses = True
    assert await ask(first, "there") is elsewhere.Presence.UNKNOWN
    assert first.voice._asked == {}


async def test_a_replaced_session_is_ended_where_it_is_held_and_nowhere_else() -> None:
    wire = Wire()
    first, second, third = Engine(wire, "a"), Engine(wire, "b"), Engine(wire, "c")
    first.voice.end(WEB, session_id="old", engine_id="b")
    assert (first.ended, second.ended, third.ended) == ([], ["old"], [])


async def test_an_engine_that_stops_gives_up_what_it_was_asked() -> None:
    wire = Wire()
    first, second = Engine(wire, "a"), Engine(wire, "b")
    never = asyncio.Event()

    async def hang(node_id: ids.NodeId, session_id: str) -> bool:
        del node_id, session_id
        return await never.wait()

    second.voice._ping = hang
    asking = asyncio.create_task(ask(first, "there"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await second.voice.stop()
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    assert second.voice._answering == set()


async def test_a_missed_signal_is_taken_for_nothing() -> None:
    wire = Wire()
    first = Engine(wire, "a")
    wire._hub.tell_all_missed()
    assert first.ended == []
