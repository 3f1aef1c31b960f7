"""The protocol without I/O: what may follow what, credit, turns and limits."""

import dataclasses
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from runtime_kit.mux import connection, frames

KIND = frames.Kind
PLENTY = 2**30


def client(**limits: int) -> connection.Connection:
    return connection.Connection(dialled=True, limits=connection.Limits(**limits))


def server(**limits: int) -> connection.Connection:
    return connection.Connection(dialled=False, limits=connection.Limits(**limits))


def pass_on(
    sender: connection.Connection, receiver: connection.Connection
) -> list[connection.Event]:
    return receiver.receive(sender.take(PLENTY))


def kinds(raw: bytes) -> list[tuple[frames.Kind, int, int]]:
    """Kind, stream and length of each frame."""
    found, at = [], 0
    while at < len(raw):
        length, kind, stream = frames.read_header(raw, at=at)
        found.append((KIND(kind), stream, length))
        at += frames.HEADER_BYTES + length
    return found


def talk(
    left: connection.Connection, right: connection.Connection
) -> tuple[list[connection.Event], list[connection.Event]]:
    """Passes bytes both ways until nobody has any; what each side heard."""
    heard: tuple[list[connection.Event], list[connection.Event]] = ([], [])
    while (raw := left.take(PLENTY)) or (back := right.take(PLENTY)):
        if raw:
            heard[1].extend(right.receive(raw))
        else:
            heard[0].extend(left.receive(back))
    return heard


def test_a_question_is_answered_on_its_stream() -> None:
    ours, theirs = client(), server()
    stream = ours.ask("hello", b"who?", most=100)
    assert pass_on(ours, theirs) == [connection.Question(stream, "hello", b"who?")]
    theirs.answer(stream, b"me")
    assert pass_on(theirs, ours) == [connection.Answered(stream, b"me")]
    assert ours.take(PLENTY) == b""
    assert theirs.take(PLENTY) == b""


def test_both_ends_ask_on_numbers_of_their_own() -> None:
    ours, theirs = client(), server()
    assert [ours.ask("a", b"", most=1) for _ in range(3)] == [1, 3, 5]
    assert [theirs.ask("a", b"", most=1) for _ in range(3)] == [2, 4, 6]
    heard = talk(ours, theirs)
    assert [len(events) for events in heard] == [3, 3]


def test_a_small_question_is_one_piece_of_three_frames() -> None:
    ours = client()
    ours.ask("beat", b"x" * 600, most=1)
    assert kinds(ours.take(PLENTY)) == [(KIND.OPEN, 1, 4), (KIND.DATA, 1, 600), (KIND.END, 1, 0)]


def test_an_answer_of_ten_megabytes_arrives_whole_and_by_credit() -> None:
    ours, theirs = client(), server()
    body = bytes(range(256)) * 40_960
    stream = ours.ask("log", b"", most=len(body))
    pass_on(ours, theirs)
    theirs.answer(stream, body)
    most = 0
    events: list[connection.Event] = []
    while not events:
        raw = theirs.take(PLENTY)
        most = max(most, sum(length for kind, _, length in kinds(raw) if kind is KIND.DATA))
        events = ours.receive(raw)
        theirs.receive(ours.take(PLENTY))
    assert events == [connection.Answered(stream, body)]
    assert most == connection.WINDOW_BYTES


def test_a_body_waits_for_credit_and_never_sends_more() -> None:
    ours = client()
    ours.ask("log", b"x" * 200_000, most=1)
    sent = ours.take(PLENTY)
    assert sum(length for kind, _, length in kinds(sent) if kind is KIND.DATA) == 65_536
    assert ours.take(PLENTY) == b""
    ours.receive(frames.frame(KIND.CREDIT, stream=1, payload=frames.number(10)))
    assert kinds(ours.take(PLENTY)) == [(KIND.DATA, 1, 10)]


def test_a_small_question_waits_for_no_body_that_came_before_it() -> None:
    ours, theirs = client(), server(question_bytes=20_000_000, buffered_bytes=20_000_000)
    for _ in range(8):
        ours.ask("log", b"x" * 10_000_000, most=1)
    for _ in range(9):
        theirs.receive(ours.take(1))
        ours.receive(theirs.take(PLENTY))
    small = ours.ask("beat", b"y" * 500, most=1)
    first = kinds(ours.take(100))[:3]
    assert [(kind, stream) for kind, stream, _ in first] == [
        (KIND.OPEN, small),
        (KIND.DATA, small),
        (KIND.END, small),
    ]


def test_small_questions_leave_in_the_order_of_asking() -> None:
    ours = client()
    for _ in range(3):
        ours.ask("beat", b"y", most=1)
    assert [stream for kind, stream, _ in kinds(ours.take(PLENTY)) if kind is KIND.END] == [1, 3, 5]


def test_bodies_take_turns_by_single_frames() -> None:
    ours = client()
    for _ in range(3):
        ours.ask("log", b"x" * 40_000, most=1)
    turns = [stream for kind, stream, _ in kinds(ours.take(PLENTY)) if kind is KIND.DATA]
    assert turns == [1, 3, 5, 1, 3, 5, 1, 3, 5]


def test_a_ping_overtakes_every_body() -> None:
    ours, theirs = client(), server()
    ours.ask("log", b"x" * 60_000, most=1)
    ours.take(1)
    ours.ping(b"12345678")
    raw = ours.take(1)
    assert kinds(raw)[0] == (KIND.PING, 0, 8)
    theirs.receive(frames.frame(KIND.PING, payload=b"12345678"))
    assert ours.receive(theirs.take(PLENTY)) == [connection.Pong(b"12345678")]


def test_too_many_questions_at_once_are_refused_one_by_one() -> None:
    ours, theirs = client(), server(streams=2)
    for _ in range(3):
        ours.ask("a", b"", most=1)
    heard, asked = talk(ours, theirs)
    assert [type(event) for event in asked] == [connection.Question, connection.Question]
    assert heard == [connection.Refused(5, "busy", "Too many questions at once.")]
    theirs.answer(1, b"")
    talk(ours, theirs)
    ours.ask("a", b"", most=1)
    talk(ours, theirs)
    assert ours.asking == 2


def test_a_cancelled_question_keeps_its_place_until_the_work_has_ended() -> None:
    ours, theirs = client(), server(streams=1)
    stream = ours.ask("a", b"", most=1)
    pass_on(ours, theirs)
    for _ in range(3):
        ours.refuse(stream, "cancelled", "Gone.")
        raw = ours.take(PLENTY) or frames.frame(KIND.RESET, stream=1, payload=b"cancelled\n")
        heard = theirs.receive(raw)
    assert heard == []
    ours.ask("a", b"", most=1)
    heard, _ = talk(ours, theirs)
    assert isinstance(heard[0], connection.Refused)
    theirs.answer(stream, b"too late")
    ours.ask("a", b"", most=1)
    _, asked = talk(ours, theirs)
    assert asked == [connection.Question(5, "a", b"")]


def test_a_question_that_is_too_long_is_refused_and_not_kept() -> None:
    ours, theirs = client(), server(question_bytes=1_000)
    stream = ours.ask("a", b"x" * 1_001, most=1)
    heard, asked = talk(ours, theirs)
    assert heard == [connection.Refused(stream, "too-long", "More than 1000 bytes.")]
    assert asked == []
    assert theirs.incomplete == []


def test_all_unfinished_questions_together_stay_within_the_limit() -> None:
    theirs = server(buffered_bytes=100_000, question_bytes=60_000)
    for stream in (1, 3, 5):
        theirs.receive(frames.frame(KIND.OPEN, stream=stream, payload=b"a"))
        for _ in range(3):
            theirs.receive(frames.frame(KIND.DATA, stream=stream, payload=b"x" * 16_000))
    assert theirs.incomplete == [1, 3]
    refused = [stream for kind, stream, _ in kinds(theirs.take(PLENTY)) if kind is KIND.RESET]
    assert refused == [5]


def test_an_answer_that_is_too_long_ends_its_stream_alone() -> None:
    ours, theirs = client(), server()
    long, short = ours.ask("a", b"", most=10), ours.ask("a", b"", most=10)
    pass_on(ours, theirs)
    theirs.answer(long, b"x" * 11)
    theirs.answer(short, b"x")
    heard, _ = talk(ours, theirs)
    assert heard == [connection.TooLong(long), connection.Answered(short, b"x")]


def test_an_answer_before_the_end_of_its_question_ends_the_question() -> None:
    ours = client()
    stream = ours.ask("a", b"x" * 100_000, most=10)
    ours.take(PLENTY)
    early = frames.frame(KIND.DATA, stream=stream, payload=b"no")
    heard = ours.receive(early + frames.frame(KIND.END, stream=stream))
    assert heard == [connection.Answered(stream, b"no")]
    assert kinds(ours.take(PLENTY))[0][:2] == (KIND.RESET, stream)


def test_frames_that_crossed_the_end_of_their_stream_are_passed_over() -> None:
    ours, theirs = client(), server()
    stream = ours.ask("a", b"", most=10)
    pass_on(ours, theirs)
    ours.refuse(stream, "cancelled", "Gone.")
    theirs.answer(stream, b"late")
    assert pass_on(theirs, ours) == []


def test_after_a_farewell_nothing_is_read_and_nothing_sent() -> None:
    ours, theirs = client(), server()
    ours.ask("a", b"x" * 100, most=10)
    ours.goaway("done", retry_after_s=2.5)
    raw = ours.take(PLENTY)
    assert theirs.receive(raw + b"\xff" * 100)[-1] == connection.GoneAway("done", 2.5)
    assert ours.take(PLENTY) == b""


BREACHES: dict[str, bytes] = {
    "a frame that is too long": b"\x00\x40\x01\x02\0\0\0\1",
    "an unknown kind": frames._HEADER.pack(99, 1),
    "the kind zero": frames._HEADER.pack(0, 1),
    "a question on a number of ours": frames.frame(KIND.OPEN, stream=2, payload=b"a"),
    "a question on the link itself": frames.frame(KIND.OPEN, stream=0, payload=b"a"),
    "a question on a number beyond all": frames.frame(KIND.OPEN, stream=2**31 + 1, payload=b"a"),
    "the same number twice": frames.frame(KIND.OPEN, stream=1, payload=b"a") * 2,
    "a number lower than before": frames.frame(KIND.OPEN, stream=3, payload=b"a")
    + frames.frame(KIND.OPEN, stream=1, payload=b"a"),
    "bytes on a stream that was never opened": frames.frame(KIND.DATA, stream=1, payload=b"a"),
    "bytes on the link itself": frames.frame(KIND.DATA, stream=0, payload=b"a"),
    "an end that was never begun": frames.frame(KIND.END, stream=5),
    "no bytes": frames.frame(KIND.OPEN, stream=1, payload=b"a") + frames.frame(KIND.DATA, stream=1),
    "bytes after the end": frames.frame(KIND.OPEN, stream=1, payload=b"a")
    + frames.frame(KIND.END, stream=1)
    + frames.frame(KIND.DATA, stream=1, payload=b"a"),
    "two ends": frames.frame(KIND.OPEN, stream=1, payload=b"a")
    + frames.frame(KIND.END, stream=1) * 2,
    "an end with bytes": frames.frame(KIND.OPEN, stream=1, payload=b"a")
    + frames.frame(KIND.END, stream=1, payload=b"a"),
    "a ping of seven bytes": frames.frame(KIND.PING, payload=b"1234567"),
    "a ping on a stream": frames.frame(KIND.PING, stream=1, payload=b"12345678"),
    "a farewell of three bytes": frames.frame(KIND.GOAWAY, payload=b"123"),
    "a refusal without a code": frames.frame(KIND.OPEN, stream=1, payload=b"a")
    + frames.frame(KIND.RESET, stream=1, payload=b"\nwhy"),
    "more credit than there may be": frames.frame(KIND.OPEN, stream=1, payload=b"a")
    + frames.frame(KIND.CREDIT, stream=1, payload=frames.number(2**31 - 1)),
}


@pytest.mark.parametrize("raw", BREACHES.values(), ids=BREACHES.keys())
def test_a_link_ends_over(raw: bytes) -> None:
    victim = server(question_bytes=PLENTY, buffered_bytes=PLENTY)
    with pytest.raises(frames.Malformed):
        victim.receive(raw)


def test_more_bytes_than_credit_end_a_link() -> None:
    victim = server()
    victim.receive(frames.frame(KIND.OPEN, stream=1, payload=b"a"))
    victim._streams[1].window = 3
    victim._streams[1].body = bytearray()
    with pytest.raises(frames.Malformed):
        victim.receive(frames.frame(KIND.DATA, stream=1, payload=b"four"))


FLOODS: dict[str, Callable[[int], bytes]] = {
    "pings": lambda _turn: frames.frame(KIND.PING, payload=b"12345678"),
    "questions past the limit": lambda turn: frames.frame(
        KIND.OPEN, stream=2 * turn + 1, payload=b"a"
    ),
    "questions that are taken back": lambda turn: (
        frames.frame(KIND.OPEN, stream=2 * turn + 1, payload=b"a")
        + frames.frame(KIND.DATA, stream=2 * turn + 1, payload=b"x" * 2_000)
    ),
}


@pytest.mark.parametrize("one", FLOODS.values(), ids=FLOODS.keys())
def test_who_reads_nothing_and_causes_answers_is_cut_off(one: Callable[[int], bytes]) -> None:
    victim = server(question_bytes=1_000)

    def flood() -> None:
        for turn in range(10_000):
            victim.receive(one(turn))

    with pytest.raises(frames.Malformed, match="does not read"):
        flood()
    assert sum(map(len, victim._control)) < 70_000


@given(st.lists(st.binary(min_size=1, max_size=200), max_size=20))
def test_any_bytes_are_understood_or_end_the_link(pieces: list[bytes]) -> None:
    victim = server()
    try:
        for piece in pieces:
            victim.receive(piece)
    except frames.Malformed:
        return
    assert len(victim._rest) <= frames.HEADER_BYTES + frames.MAX_PAYLOAD


SOME_FRAMES = st.builds(
    frames.frame,
    st.sampled_from(list(KIND)),
    stream=st.integers(0, 9),
    payload=st.sampled_from([b"", b"a", b"12345678", frames.number(1), frames.number(70_000)])
    | st.binary(max_size=40),
)


@settings(max_examples=300)
@given(st.lists(SOME_FRAMES, max_size=40), st.integers(1, 64))
def test_any_frames_in_any_order_keep_the_books_straight(raw: list[bytes], cut: int) -> None:
    victim = server(streams=3, question_bytes=64, buffered_bytes=100)
    victim.ask("a", b"x" * 100_000, most=50)
    whole = b"".join(raw)
    try:
        for at in range(0, len(whole), cut):
            for event in victim.receive(whole[at : at + cut]):
                if isinstance(event, connection.Question):
                    victim.answer(event.stream, b"y" * 100)
            victim.take(1_000)
            held = [s for n, s in victim._streams.items() if n % 2 and s.body is not None]
            assert victim._buffered == sum(len(s.body or b"") for s in held) <= 100
            assert len(victim._streams) <= 4
            assert len(set(victim._turns)) == len(victim._turns)
            assert set(victim._turns) <= set(victim._streams)
            assert 0 <= victim._fresh <= len(victim._turns)
    except frames.Malformed:
        return


class TwoEnds(RuleBasedStateMachine):
    """Two honest ends, bytes cut anywhere: every question ends once, with its own answer."""

    def __init__(self) -> None:
        super().__init__()
        limits = connection.Limits(streams=4, question_bytes=90_000)
        self.ends = (
            connection.Connection(dialled=True, limits=limits),
            connection.Connection(dialled=False, limits=limits),
        )
        self.wires = [bytearray(), bytearray()]
        self.open: list[dict[int, bytes]] = [{}, {}]
        self.work: list[dict[int, bytes]] = [{}, {}]

    @rule(side=st.integers(0, 1), size=st.integers(0, 80_000), mark=st.binary(max_size=4))
    def ask(self, side: int, size: int, mark: bytes) -> None:
        body = mark + b"q" * size
        stream = self.ends[side].ask("echo", body, most=200_000)
        self.open[side][stream] = body

    @rule(side=st.integers(0, 1), most=st.integers(1, 40_000))
    def send(self, side: int, most: int) -> None:
        self.wires[side] += self.ends[side].take(most)

    @rule(side=st.integers(0, 1), size=st.integers(1, 50_000))
    def arrive(self, side: int, size: int) -> None:
        piece = bytes(self.wires[1 - side][:size])
        del self.wires[1 - side][:size]
        for event in self.ends[side].receive(piece):
            if isinstance(event, connection.Question):
                self.work[side][event.stream] = event.body
            elif isinstance(event, connection.Answered):
                assert event.body == self.open[side].pop(event.stream)[::-1]
            elif isinstance(event, connection.Refused):
                assert event.code == "busy"
                del self.open[side][event.stream]
            elif isinstance(event, connection.Cancelled):
                self.work[side].pop(event.stream, None)
                self.ends[side].forget(event.stream)

    @rule(side=st.integers(0, 1))
    def answer(self, side: int) -> None:
        for stream, body in self.work[side].items():
            self.ends[side].answer(stream, body[::-1])
        self.work[side].clear()

    @rule(side=st.integers(0, 1))
    def cancel(self, side: int) -> None:
        for stream in list(self.open[side])[:1]:
            self.ends[side].refuse(stream, "cancelled", "")
            del self.open[side][stream]

    @invariant()
    def the_limits_hold(self) -> None:
        for side in (0, 1):
            core = self.ends[side]
            theirs = len(core._streams) - core.asking
            assert theirs <= 4
            assert core.asking == len(self.open[side])

    def teardown(self) -> None:
        for _ in range(400):
            for side in (0, 1):
                self.answer(side)
                self.send(side, PLENTY)
                self.arrive(side, PLENTY)
                self.arrive(1 - side, PLENTY)
            if not any(self.open):
                break
        assert self.open == [{}, {}]
        assert self.ends[0]._streams == self.ends[1]._streams == {}
        assert self.ends[0]._buffered == self.ends[1]._buffered == 0


TwoEnds.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestTwoEnds = TwoEnds.TestCase


def test_an_idle_end_holds_no_more_than_a_few_empty_containers() -> None:
    ours, theirs = client(), server()
    for _ in range(100):
        stream = ours.ask("a", b"x" * 5_000, most=5_000)
        pass_on(ours, theirs)
        theirs.answer(stream, b"x" * 5_000)
        talk(ours, theirs)
    for core in (ours, theirs):
        assert (core._streams, core._control, core._turns, core._rest) == ({}, [], [], b"")


def test_limits_are_of_one_side_and_may_be_exchanged() -> None:
    ours, theirs = client(), server(streams=1)
    theirs.limits = dataclasses.replace(theirs.limits, streams=2)
    for _ in range(2):
        ours.ask("a", b"", most=1)
    assert len(pass_on(ours, theirs)) == 2
