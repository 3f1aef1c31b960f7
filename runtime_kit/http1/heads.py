"""Reads the heads of requests and answers, strictly: bytes in, value or refusal out.

For: the server's side of the wire and the kept-alive leg between two processes of ours. One
regular expression says what a head is; possessive quantifiers keep it linear in its length.
Not for: answers of other people's servers, which ``client`` reads with h11.
Known limit: what RFC 9112 lets a server be lenient about is refused: bare line feeds, folded
lines, blanks before the colon, HTTP/1.0, transfer codings, more than one Content-Length or Host.
"""

import re

from runtime_kit.http1 import messages

END = b"\r\n\r\n"
_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"
_FIELDS = rb"(?:" + _TOKEN + rb":[\t\x20-\x7e\x80-\xff]*+\r\n)*+"
_REQUEST = re.compile(rb"(" + _TOKEN + rb") ([\x21-\x7e]++) HTTP/1\.1\r\n(" + _FIELDS + rb")\r\n")
_ANSWER = re.compile(rb"HTTP/1\.1 ([1-9][0-9][0-9]) [^\r\n]*+\r\n(" + _FIELDS + rb")\r\n")
_LENGTH = re.compile(r"(?:0|[1-9][0-9]{0,18})")
_ONCE = frozenset({"content-length", "host", "transfer-encoding", "connection", "expect"})


class Malformed(Exception):
    """The head is not one this server understands; close the connection."""


def parse_request(head: bytes) -> messages.Head:
    """Read a request's head, the blank line included.

    Raises:
        Malformed: Anything out of the ordinary.
    """
    match = _REQUEST.fullmatch(head)
    if match is None:
        raise Malformed("The head is not an HTTP/1.1 request")
    headers = _headers(match[3])
    if not headers.get("host"):
        raise Malformed("A request names its host")
    return messages.Head(
        method=match[1].decode("ascii"),
        target=match[2],
        headers=headers,
        content_length=_content_length(headers) or 0,
    )


def parse_answer(head: bytes) -> tuple[int, dict[str, str], int | None]:
    """Read an answer's head: status, headers, and the length of its body if it states one.

    Raises:
        Malformed: Anything out of the ordinary.
    """
    match = _ANSWER.fullmatch(head)
    if match is None:
        raise Malformed("The head is not an HTTP/1.1 answer")
    headers = _headers(match[2])
    return int(match[1]), headers, _content_length(headers)


def _headers(block: bytes) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in block.decode("latin-1").split("\r\n"):
        name, _, value = line.partition(":")
        if not name:
            continue
        lower, text = name.lower(), value.strip(" \t")
        if lower not in headers:
            headers[lower] = text
        elif lower in _ONCE:
            raise Malformed(f"{lower} stands more than once")
        else:
            headers[lower] += ", " + text
    if "transfer-encoding" in headers:
        raise Malformed("Transfer codings are not spoken here")
    return headers


def _content_length(headers: dict[str, str]) -> int | None:
    text = headers.get("content-length")
    if text is None:
        return None
    if _LENGTH.fullmatch(text) is None:
        raise Malformed("Content-Length is not a plain number")
    return int(text)
