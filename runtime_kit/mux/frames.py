"""What one frame of a link is: 8 bytes of header, at most 16 KiB of payload.

    0      3      4          8
    length kind   stream     payload …       all numbers unsigned, big-endian

    OPEN    a new stream; payload: the method it asks for
    DATA    bytes of the stream's body, at least one
    END     this side's body is complete
    RESET   the stream is over: a code, a line feed, one sentence
    CREDIT  so many more bytes of DATA may be sent on the stream (4 bytes)
    PING    8 bytes, which PONG gives back; stream 0
    PONG
    GOAWAY  the link ends: milliseconds until a return is welcome (4 bytes, all ones: not said),
            then one sentence; stream 0

For: writing frames and reading their payloads. Not for: what may follow what (``connection``).
"""

import enum
import re
import struct

HEADER_BYTES = 8
MAX_PAYLOAD = 16_384
MAX_METHOD_BYTES = 64
MAX_CODE_BYTES = 64
MAX_TEXT_BYTES = 1_024
PING_BYTES = 8
MAX_STREAM = 2**31 - 1
MAX_CREDIT = 2**31 - 1
MAX_RETRY_AFTER_S = 86_400.0

_HEADER = struct.Struct(">II")
_NUMBER = struct.Struct(">I")
_METHOD = re.compile(rb"[\x21-\x7e]+")
_NOT_SAID = 2**32 - 1


class Kind(enum.IntEnum):
    """What a frame is for."""

    OPEN = 1
    DATA = 2
    END = 3
    RESET = 4
    CREDIT = 5
    PING = 6
    PONG = 7
    GOAWAY = 8


class Malformed(Exception):
    """The other side sent what is no frame, or one that may not come now; the link ends."""


def frame(kind: Kind, *, stream: int = 0, payload: bytes = b"") -> bytes:
    """The frame as it crosses the wire."""
    return _HEADER.pack(len(payload) << 8 | kind, stream) + payload


def read_header(raw: bytes | memoryview, *, at: int = 0) -> tuple[int, int, int]:
    """Length, kind and stream from the 8 bytes there; nothing is judged yet."""
    first, stream = _HEADER.unpack_from(raw, at)
    return first >> 8, first & 0xFF, stream


def whole_body(body: bytes, *, stream: int) -> bytes:
    """DATA, unless the body is empty, and END; for a body of one frame."""
    end = _HEADER.pack(Kind.END, stream)
    if not body:
        return end
    return b"%b%b%b" % (_HEADER.pack(len(body) << 8 | Kind.DATA, stream), body, end)


def find_whole_body(raw: bytes, *, at: int, stream: int) -> int | None:
    """The length of the body if DATA and END of this stream stand there whole."""
    if len(raw) - at < 2 * HEADER_BYTES:
        return None
    first, found = _HEADER.unpack_from(raw, at)
    length = first >> 8
    if found != stream or first & 0xFF != Kind.DATA or not 1 <= length <= MAX_PAYLOAD:
        return None
    last = at + HEADER_BYTES + length
    if len(raw) - last < HEADER_BYTES or _HEADER.unpack_from(raw, last) != (Kind.END, stream):
        return None
    return int(length)


def number(value: int) -> bytes:
    """A payload of one number."""
    return _NUMBER.pack(value)


def read_credit(payload: bytes) -> int:
    """How much more may be sent, at least one byte."""
    if len(payload) != 4:
        raise Malformed("A credit is four bytes")
    (value,) = _NUMBER.unpack(payload)
    if not 1 <= value <= MAX_CREDIT:
        raise Malformed("A credit out of range")
    return int(value)


def read_method(payload: bytes) -> str:
    """The method's name: printable ASCII without spaces."""
    if not 1 <= len(payload) <= MAX_METHOD_BYTES:
        raise Malformed("A method's name is of 1 to 64 bytes")
    if _METHOD.fullmatch(payload) is None:
        raise Malformed("A method's name is printable ASCII")
    return payload.decode("ascii")


def reset(code: str, *, detail: str) -> bytes:
    """The payload of RESET."""
    return code.encode("ascii", "replace")[:MAX_CODE_BYTES] + b"\n" + _text(detail)


def read_reset(payload: bytes) -> tuple[str, str]:
    """Code and sentence; what is no text in them is replaced, since it is only shown."""
    code, _, detail = payload.partition(b"\n")
    if not 1 <= len(code) <= MAX_CODE_BYTES or len(detail) > MAX_TEXT_BYTES:
        raise Malformed("A refusal is a code and one sentence")
    return code.decode("ascii", "replace"), _shown(detail)


def goaway(reason: str, *, retry_after_s: float | None) -> bytes:
    """The payload of GOAWAY."""
    if retry_after_s is None:
        return number(_NOT_SAID) + _text(reason)
    return number(int(min(max(retry_after_s, 0.0), MAX_RETRY_AFTER_S) * 1000)) + _text(reason)


def read_goaway(payload: bytes) -> tuple[str, float | None]:
    """The sentence, and after how many seconds a return is welcome."""
    if not 4 <= len(payload) <= 4 + MAX_TEXT_BYTES:
        raise Malformed("A farewell is four bytes and one sentence")
    (milliseconds,) = _NUMBER.unpack_from(payload)
    after = None if milliseconds == _NOT_SAID else min(milliseconds / 1000, MAX_RETRY_AFTER_S)
    return _shown(payload[4:]), after


def _text(text: str) -> bytes:
    return text.encode("utf-8", "replace")[:MAX_TEXT_BYTES]  # half a character is no text


def _shown(raw: bytes) -> str:
    """Text of a stranger: without control characters, which could act on a terminal."""
    text = raw.decode("utf-8", "replace")
    return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text)
