import re

import hypothesis
import pytest
from hypothesis import strategies as st

from runtime_kit.http1 import heads, messages

GOOD = (
    b"POST /api/v1/enroll HTTP/1.1\r\n"
    b"Host: edge:8444\r\n"
    b"Content-Type:\t application/json \r\n"
    b"X-Odd:\r\n"
    b"Accept: a\r\n"
    b"Accept: b\r\n"
    b"Content-Length: 12\r\n\r\n"
)


def test_a_plain_head_is_read_whole() -> None:
    head = heads.parse_request(GOOD)
    assert (head.method, head.target, head.content_length) == ("POST", b"/api/v1/enroll", 12)
    assert head.headers == {
        "host": "edge:8444",
        "content-type": "application/json",
        "x-odd": "",
        "accept": "a, b",
        "content-length": "12",
    }


def test_the_target_is_handed_on_raw() -> None:
    raw = b"/%2e%2E//x;y?z#"
    head = heads.parse_request(b"GET " + raw + b" HTTP/1.1\r\nHost: h\r\n\r\n")
    assert head.target == raw


ODD_LINES = {
    "a transfer coding": b"Transfer-Encoding: chunked",
    "a transfer coding of none": b"Transfer-Encoding: identity",
    "a second length": b"Content-Length: 12",
    "a second host": b"Host: edge:8444",
    "a second connection": b"Connection: close\r\nConnection: close",
    "a folded line": b" folded: 1",
    "a tab first": b"\tfolded: 1",
    "a blank before the colon": b"X-A : 1",
    "no colon": b"X-A",
    "no name": b": 1",
    "a name with a bracket": b"X(A): 1",
    "a control character": b"X-A: \x07",
    "a zero byte": b"X-A: \x00",
    "delete": b"X-A: \x7f",
    "a bare carriage return": b"X-A: 1\r2",
    "a bare line feed": b"X-A: 1\n2",
}


@pytest.mark.parametrize("line", ODD_LINES.values(), ids=ODD_LINES.keys())
def test_an_odd_line_refuses_the_head(line: bytes) -> None:
    with pytest.raises(heads.Malformed):
        heads.parse_request(GOOD[:-2] + line + b"\r\n\r\n")


@pytest.mark.parametrize(
    "length", ["+1", "-1", "1 1", "1,1", "0x1", "01", "1_0", "1.0", "", "²", "9" * 30]
)
def test_a_length_is_a_plain_number(length: str) -> None:
    raw = f"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n".encode("latin-1")
    with pytest.raises(heads.Malformed):
        heads.parse_request(raw)


@pytest.mark.parametrize(
    "first",
    [
        b"POST / HTTP/1.0",
        b"POST / HTTP/2.0",
        b"POST / http/1.1",
        b"POST /",
        b"POST  / HTTP/1.1",
        b"POST / HTTP/1.1 ",
        b" POST / HTTP/1.1",
        b"P OST / HTTP/1.1",
        b"POST /\xc3\xb6 HTTP/1.1",
        b"POST /\t HTTP/1.1",
        b"",
    ],
)
def test_an_odd_first_line_refuses_the_head(first: bytes) -> None:
    with pytest.raises(heads.Malformed):
        heads.parse_request(first + b"\r\nHost: h\r\n\r\n")


def test_a_request_without_a_host_is_refused() -> None:
    for host in (b"", b"Host:\r\n", b"Host: \r\n"):
        with pytest.raises(heads.Malformed):
            heads.parse_request(b"POST / HTTP/1.1\r\n" + host + b"\r\n")


@hypothesis.given(st.binary(max_size=400))
def test_whatever_comes_is_read_or_refused(raw: bytes) -> None:
    for whole in (raw, raw + heads.END, GOOD[:-2] + raw + heads.END):
        try:
            head = heads.parse_request(whole)
        except heads.Malformed:
            continue
        assert isinstance(head, messages.Head)
        assert head.content_length >= 0
        assert "transfer-encoding" not in head.headers


@hypothesis.given(
    st.lists(
        st.tuples(
            st.text("abcxyz019-", min_size=1, max_size=12).map(lambda name: f"x-{name}"),
            st.text('abc :;,="()\t~!', max_size=20).map(lambda value: value.strip(" \t")),
        ),
        max_size=8,
        unique_by=lambda pair: pair[0],
    ),
    st.integers(0, 10**18),
)
def test_what_is_well_formed_is_read_as_it_was_meant(
    fields: list[tuple[str, str]], length: int
) -> None:
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields)
    raw = f"POST /x HTTP/1.1\r\nHost: h\r\n{lines}Content-Length: {length}\r\n\r\n"
    head = heads.parse_request(raw.encode("ascii"))
    assert head.headers == {"host": "h", **dict(fields), "content-length": str(length)}
    assert head.content_length == length


def test_an_answer_is_read_with_its_length() -> None:
    raw = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 2\r\n\r\n"
    assert heads.parse_answer(raw) == (503, {"retry-after": "5", "content-length": "2"}, 2)


def test_our_own_answers_can_be_read_again() -> None:
    for status in (200, 204, 404, 418, 799):
        response = messages.Response(status=status, headers={"content-type": "x"}, body=b"")
        raw = messages.encode_response(response, close=True, with_body=True)
        got, headers, length = heads.parse_answer(raw)
        assert (got, headers["cache-control"], headers["connection"]) == (
            status,
            "no-store",
            "close",
        )
        assert length == (None if status == 204 else 0)


def test_an_answer_names_no_server() -> None:
    raw = messages.encode_response(messages.Response(status=404), close=False, with_body=True)
    assert re.findall(rb"\r\n([a-z-]+):", raw) == [*(b"content-length", b"date", b"cache-control")]
