"""Frames: what is written is read again, and what is no frame is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime_kit.mux import frames

NO_CREDIT = {
    "nothing": b"",
    "three bytes": b"\0\0\1",
    "five bytes": b"\0\0\0\1\0",
    "zero": frames.number(0),
    "more than there may ever be": frames.number(2**31),
}
NO_METHOD = {
    "nothing": b"",
    "a space": b"a b",
    "a line feed at the end": b"hello\n",
    "a NUL": b"a\0",
    "a letter beyond ASCII": "ä".encode(),
    "65 bytes": b"a" * 65,
}


@given(
    kind=st.sampled_from(list(frames.Kind)),
    stream=st.integers(0, 2**32 - 1),
    payload=st.binary(max_size=300),
)
def test_a_frame_is_read_as_it_was_written(kind: frames.Kind, stream: int, payload: bytes) -> None:
    raw = frames.frame(kind, stream=stream, payload=payload)
    assert len(raw) == frames.HEADER_BYTES + len(payload)
    assert frames.read_header(raw) == (len(payload), kind, stream)


def test_a_frame_on_the_wire_is_length_kind_stream_and_payload() -> None:
    raw = frames.frame(frames.Kind.DATA, stream=7, payload=b"abc")
    assert raw.hex(" ") == "00 00 03 02 00 00 00 07 61 62 63"


@pytest.mark.parametrize("payload", NO_CREDIT.values(), ids=NO_CREDIT.keys())
def test_no_credit_is(payload: bytes) -> None:
    with pytest.raises(frames.Malformed):
        frames.read_credit(payload)


@pytest.mark.parametrize("payload", NO_METHOD.values(), ids=NO_METHOD.keys())
def test_no_methods_name_is(payload: bytes) -> None:
    with pytest.raises(frames.Malformed):
        frames.read_method(payload)


@given(
    reason=st.text(max_size=200),
    seconds=st.none() | st.floats(min_value=0, max_value=frames.MAX_RETRY_AFTER_S),
)
def test_a_farewell_says_when_a_return_is_welcome(reason: str, seconds: float | None) -> None:
    read, after = frames.read_goaway(frames.goaway(reason, retry_after_s=seconds))
    assert read.isprintable()
    if seconds is None:
        assert after is None
    else:
        assert after == pytest.approx(seconds, abs=0.001)


def test_a_farewell_never_asks_for_more_than_a_day() -> None:
    assert frames.read_goaway(frames.goaway("", retry_after_s=10.0**9)) == ("", 86_400.0)
    assert frames.read_goaway(frames.number(2**32 - 2)) == ("", 86_400.0)


def test_a_refusal_loses_what_could_act_on_a_terminal() -> None:
    code, detail = frames.read_reset(b"busy\n\x1b[2Jgone\xff")
    assert code == "busy"
    assert detail.isprintable()


@pytest.mark.parametrize("text", ["half a character \ud800", "ä" * 600, "\n\0", ""])
def test_any_text_can_be_a_refusals_and_a_farewells(text: str) -> None:
    code, detail = frames.read_reset(frames.reset("not-now", detail=text))
    reason, _ = frames.read_goaway(frames.goaway(text, retry_after_s=None))
    assert code == "not-now"
    assert detail == reason
    assert len(detail.encode()) <= frames.MAX_TEXT_BYTES + 2


@given(st.binary(max_size=2_000))
def test_any_payload_is_read_or_refused(payload: bytes) -> None:
    for read in (
        frames.read_credit,
        frames.read_method,
        frames.read_reset,
        frames.read_goaway,
    ):
        try:
            read(payload)
        except frames.Malformed:
            continue
