"""A link: questions, answers, pings and ends, between two ends in memory."""

import asyncio
import logging

import pytest

from runtime_kit import clock as clock_kit
from runtime_kit import failures
from runtime_kit.mux import connection, frames, link, transports
from tests.support import waits


class Wire:
    """Keeps what was written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def close(self, *, within_s: float) -> None:  # noqa: ARG002 - as the seam has it
        self.closed = True


async def echo(_link: link.Link, method: str, body: bytes) -> bytes:
    return method.encode() + b" " + body


async def stay(_link: link.Link, _method: str, _body: bytes) -> bytes:
    await asyncio.Event().wait()
    return b""


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_each_end_asks_and_answers() -> None:
    left, right = transports.in_memory_pair(answer_left=echo, answer_right=echo)
    assert await left.ask("a", b"1", timeout_s=1) == b"a 1"
    assert await right.ask("b", b"2", timeout_s=1) == b"b 2"


async def test_many_questions_at_once_each_get_their_own_answer() -> None:
    left, _ = transports.in_memory_pair(answer_right=echo)
    asked = [left.ask("n", b"%d" % n, timeout_s=1) for n in range(50)]
    assert await asyncio.gather(*asked) == [b"n %d" % n for n in range(50)]


async def test_a_refusal_arrives_with_its_code_and_sentence() -> None:
    async def refuse(_link: link.Link, _method: str, _body: bytes) -> bytes:
        raise link.Refusal("generation-conflict", "A copy of this identity runs.")

    left, _ = transports.in_memory_pair(answer_right=refuse)
    with pytest.raises(link.Refused) as caught:
        await left.ask("hello", b"", timeout_s=1)
    assert (caught.value.code, caught.value.detail) == (
        "generation-conflict",
        "A copy of this identity runs.",
    )
    assert caught.value.kind is failures.Kind.PERMANENT


async def test_who_answers_nothing_says_so() -> None:
    left, _ = transports.in_memory_pair()
    with pytest.raises(link.Refused, match="unknown"):
        await left.ask("hello", b"", timeout_s=1)


async def test_a_fault_in_an_answer_ends_that_question_and_tells_nothing_of_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail(_link: link.Link, method: str, _body: bytes) -> bytes:
        if method == "bad":
            raise ValueError("secret detail")
        return b"fine"

    left, _ = transports.in_memory_pair(answer_right=fail)
    with caplog.at_level(logging.ERROR), pytest.raises(link.Refused) as caught:
        await left.ask("bad", b"", timeout_s=1)
    assert caught.value.code == "failed"
    assert "secret" not in str(caught.value)
    assert "secret detail" in caplog.text
    assert await left.ask("good", b"", timeout_s=1) == b"fine"


async def test_silence_ends_the_question_and_stops_the_work_on_it() -> None:
    pair = transports.in_memory_pair(answer_right=stay)
    with pytest.raises(link.Silent):
        await pair.left.ask("a", b"", timeout_s=0.01)
    await turns()
    assert not pair.right._answering
    pair.right.answer = echo
    assert await pair.left.ask("a", b"", timeout_s=1) == b"a "


async def test_a_cancelled_ask_stops_the_work_on_it() -> None:
    left, right = transports.in_memory_pair(answer_right=stay)
    asking = asyncio.create_task(left.ask("a", b"", timeout_s=1))
    await turns()
    assert right._answering
    asking.cancel()
    await turns()
    assert not right._answering
    assert left._waiting is None


async def test_an_answer_that_is_too_long_is_named() -> None:
    async def much(_link: link.Link, _method: str, _body: bytes) -> bytes:
        return b"x" * 101

    left, _ = transports.in_memory_pair(answer_right=much)
    with pytest.raises(link.AnswerTooLong):
        await left.ask("a", b"", timeout_s=1, max_bytes=100)


async def test_more_questions_than_allowed_are_refused_before_they_leave() -> None:
    limits = connection.Limits(asks=2)
    left, _ = transports.in_memory_pair(answer_right=stay, limits=limits)
    open_ = [asyncio.create_task(left.ask("a", b"", timeout_s=1)) for _ in range(2)]
    await turns()
    with pytest.raises(link.Refused, match="busy"):
        await left.ask("a", b"", timeout_s=1)
    left.close(reason="done")
    for task in open_:
        with pytest.raises(link.Closed):
            await task


async def test_a_farewell_tells_the_reason_and_when_to_return() -> None:
    left, right = transports.in_memory_pair()
    right.close(reason="engine-replaced", retry_after_s=3.25)
    right.close(reason="another", retry_after_s=9)
    assert await left.wait_closed() == link.Ended(
        reason="engine-replaced", retry_after_s=3.25, by_peer=True
    )
    assert await right.wait_closed() == link.Ended(reason="engine-replaced", retry_after_s=3.25)
    with pytest.raises(link.Closed, match="engine-replaced"):
        await left.ask("a", b"", timeout_s=1)
    with pytest.raises(link.Closed):
        await left.ping(timeout_s=1)


async def test_an_end_wakes_everybody_who_waits_and_stops_all_work() -> None:
    pair = transports.in_memory_pair(answer_left=stay, answer_right=stay)
    told: list[link.Ended] = []
    pair.left.on_end = lambda _link, ended: told.append(ended)
    asked = [
        asyncio.create_task(pair.left.ask("a", b"", timeout_s=1)),
        asyncio.create_task(pair.right.ask("a", b"", timeout_s=1)),
    ]
    closed = asyncio.create_task(pair.left.wait_closed())
    await turns()
    assert pair.left._answering
    pair.cut(reason="gone")
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(result) for result in results] == [link.Closed, link.Closed]
    assert await closed == link.Ended(reason="gone")
    assert told == [link.Ended(reason="gone")]
    await turns()
    assert not pair.left._answering
    assert not pair.right._answering


async def test_a_blackhole_is_silent_and_what_was_under_way_arrives_after_it() -> None:
    pair = transports.in_memory_pair(answer_right=echo)
    pair.blackhole()
    with pytest.raises(link.Silent):
        await pair.left.ping(timeout_s=0.01)
    asking = asyncio.create_task(pair.left.ask("a", b"1", timeout_s=1))
    pair.right.close(reason="nobody hears this")
    await turns()
    assert pair.left.ended is None
    assert not asking.done()
    pair.heal()
    with pytest.raises(link.Closed, match="nobody hears this"):
        await asking


async def test_a_ping_is_answered_without_a_task() -> None:
    left, right = transports.in_memory_pair()
    await left.ping(timeout_s=1)
    assert right._answering is None


async def test_the_last_byte_heard_is_dated_by_the_clock() -> None:
    clock = clock_kit.ManualClock(clock_kit.from_micros(0))
    left, right = transports.in_memory_pair(clock=clock)
    clock.advance(30)
    assert (left.heard_at(), right.heard_at()) == (0, 0)
    await left.ping(timeout_s=1)
    assert (left.heard_at(), right.heard_at()) == (30, 30)


async def test_an_idle_link_has_no_task_no_timer_and_no_leftovers() -> None:
    before = asyncio.all_tasks()
    left, right = transports.in_memory_pair(answer_left=echo, answer_right=echo)
    await left.ask("a", b"x" * 50_000, timeout_s=1, max_bytes=100_000)
    await right.ping(timeout_s=1)
    await turns()
    assert asyncio.all_tasks() == before
    for end in (left, right):
        leftovers = (end._waiting, end._answering, end._arriving, end._pings, end._watchers)
        assert not any(leftovers)


async def test_a_question_that_arrives_too_slowly_is_refused() -> None:
    wire = Wire()
    slow = link.Link(
        peer="p", dialled=False, answer=echo, limits=connection.Limits(question_s=0.01)
    )
    slow.begin(wire)
    slow.received(frames.frame(frames.Kind.OPEN, stream=1, payload=b"a"))
    await waits.until(lambda: bool(wire.written), seconds=1)
    length, kind, stream = frames.read_header(wire.written[0])
    assert (kind, stream) == (frames.Kind.RESET, 1)
    assert b"too-slow" in wire.written[0][:length]
    assert slow._arriving is None


async def test_a_breach_of_the_protocol_is_answered_by_a_farewell_and_a_close() -> None:
    wire = Wire()
    victim = link.Link(peer="p", dialled=False)
    victim.begin(wire)
    victim.received(b"\xff" * 100)
    assert victim.ended is not None
    assert "broke the protocol" in victim.ended.reason
    assert not victim.ended.by_peer
    assert frames.read_header(wire.written[0])[1] == frames.Kind.GOAWAY
    assert wire.closed
    victim.received(b"more")
    assert len(wire.written) == 1


async def test_a_full_transport_gets_nothing_until_it_has_room() -> None:
    wire = Wire()
    ours = link.Link(peer="p", dialled=True)
    ours.begin(wire)
    ours.pause()
    asking = asyncio.create_task(ours.ask("a", b"x", timeout_s=1))
    await turns()
    assert wire.written == []
    ours.resume()
    assert len(wire.written) == 1
    ours.lost("gone")
    with pytest.raises(link.Closed):
        await asking


async def test_a_client_that_is_refused_by_its_certificate_is_told_by_name() -> None:
    ours = link.Link(peer="p", dialled=True)
    ours.begin(Wire())
    asking = asyncio.create_task(ours.ask("hello", b"", timeout_s=1))
    await turns()
    ours.lost("p refused this client's certificate", client_refused=True)
    with pytest.raises(link.ClientRefused) as caught:
        await asking
    assert caught.value.kind is failures.Kind.NEEDS_OPERATOR


async def test_questions_asked_before_the_connection_stands_leave_when_it_does() -> None:
    ours = link.Link(peer="p", dialled=True)
    asking = asyncio.create_task(ours.ask("a", b"x", timeout_s=1))
    await turns()
    wire = Wire()
    ours.begin(wire)
    assert wire.written
    ours.lost("gone")
    with pytest.raises(link.Closed):
        await asking


async def test_what_stands_behind_a_farewell_is_not_begun() -> None:
    begun: list[str] = []

    async def note(_link: link.Link, method: str, _body: bytes) -> bytes:
        begun.append(method)
        return b""

    theirs = link.Link(peer="p", dialled=False, answer=note)
    theirs.begin(Wire())
    theirs.received(
        frames.frame(frames.Kind.GOAWAY, payload=frames.goaway("done", retry_after_s=None))
        + frames.frame(frames.Kind.OPEN, stream=1, payload=b"a")
        + frames.frame(frames.Kind.END, stream=1)
    )
    await turns()
    assert begun == []


async def test_an_answer_may_end_its_own_link_and_go_on() -> None:
    went_on = asyncio.Event()

    async def end(own: link.Link, _method: str, _body: bytes) -> bytes:
        own.close(reason="not-now", retry_after_s=1.0)
        await asyncio.sleep(0)
        went_on.set()
        return b"nobody reads this"

    left, _ = transports.in_memory_pair(answer_right=end)
    with pytest.raises(link.Closed, match="not-now"):
        await left.ask("hello", b"", timeout_s=1)
    await asyncio.wait_for(went_on.wait(), 1)


async def test_a_fault_of_whoever_is_told_of_the_end_stays_his(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(_link: link.Link, _ended: link.Ended) -> None:
        raise ValueError("on end")

    pair = transports.in_memory_pair()
    pair.left.on_end = fail
    with caplog.at_level(logging.ERROR):
        pair.cut(reason="gone")
    assert pair.right.ended == link.Ended(reason="gone")
    assert "on end" in caplog.text


async def test_what_needs_no_waiting_is_answered_without_a_task(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def now(own: link.Link, method: str, body: bytes) -> bytes | None:
        assert not own._answering
        if method == "bad":
            raise ValueError("a fault")
        if method == "no":
            raise link.Refusal("not-now", "Later.")
        return body[::-1] if method == "beat" else None

    left, right = transports.in_memory_pair(answer_right=echo)
    right.answer_now = now
    before = asyncio.all_tasks()
    asking = left.ask("beat", b"abc", timeout_s=1)
    assert await asking == b"cba"
    assert asyncio.all_tasks() == before
    assert await left.ask("other", b"x", timeout_s=1) == b"other x"
    with pytest.raises(link.Refused, match="not-now"):
        await left.ask("no", b"", timeout_s=1)
    with caplog.at_level(logging.ERROR), pytest.raises(link.Refused, match="failed"):
        await left.ask("bad", b"", timeout_s=1)
    assert await left.ask("beat", b"1", timeout_s=1) == b"1"


def question(number: int) -> bytes:
    opening = frames.frame(frames.Kind.OPEN, stream=2 * number + 1, payload=b"heartbeat")
    return opening + frames.whole_body(b"{}", stream=2 * number + 1)


def deaf_link(*, answer: link.Answer | None = None) -> tuple[link.Link, Wire]:
    """A link to a peer that reads nothing: the transport has enough from the start."""
    made, wire = link.Link(peer="p", dialled=False, answer=answer), Wire()
    made.begin(wire)
    made.pause()
    return made, wire


@pytest.mark.parametrize("refuses", [False, True])
async def test_a_peer_that_never_reads_and_asks_for_ever_is_ended_and_memory_stays_bounded(
    *, refuses: bool
) -> None:
    def now(_own: link.Link, _method: str, _body: bytes) -> bytes:
        if refuses:
            raise link.Refusal("not-now", "x" * 200)
        return b"x" * connection.SMALL_BYTES

    ours, wire = deaf_link()
    ours.answer_now = now
    held = 0
    for number in range(100_000):
        ours.received(question(number))
        if ours.ended is not None:
            break
        held = max(held, sum(map(len, ours._core._control)))
    assert ours.ended is not None
    assert wire.closed
    assert held <= connection.Limits().unsent_bytes


async def test_answers_that_wait_to_be_read_keep_their_places_among_the_questions() -> None:
    ours, wire = deaf_link()
    ours.answer_now = lambda _own, _method, _body: b"fine"
    for number in range(65):
        ours.received(question(number))
    ours.resume()
    assert wire.written[0].count(b"fine") == 64
    assert wire.written[0].count(b"busy") == 1
    ours.received(question(65))
    assert b"fine" in wire.written[1]


async def test_a_side_that_asks_a_peer_that_never_reads_does_not_heap_up_questions() -> None:
    ours, wire = deaf_link()
    most = connection.Limits().unsent_bytes // connection.SMALL_BYTES
    for _ in range(most + 1):
        asking = asyncio.create_task(ours.ask("a", b"x" * connection.SMALL_BYTES, timeout_s=1))
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises((asyncio.CancelledError, link.Closed)):
            await asking
        if ours.ended is not None:
            break
    assert ours.ended is not None
    assert wire.closed
