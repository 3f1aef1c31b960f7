"""One request off the socket: who asks, by the kernel's word; one bounded line; at most one file.

Blocking, with one limit of time for the whole; runs in a thread.
"""

import array
import contextlib
import dataclasses
import os
import socket
import struct
import time

from root_helper import refusals
from wire_protocol import helper_protocol as helper
from wire_protocol import strict_json

READ_SECONDS = 5.0
_MOST_DESCRIPTORS = 4  # one is wanted; more are closed and refused
_PEER = struct.Struct("3i")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What was asked for. `descriptor` is the asker's file, ours to close."""

    verb: helper.Verb
    fields: strict_json.Fields
    descriptor: int | None

    def close(self) -> None:
        """Closes the file that came with it."""
        if self.descriptor is not None:
            os.close(self.descriptor)


def require_peer(connection: socket.socket, *, allowed: frozenset[int]) -> None:
    """That the other end is one of these accounts; raises `Refused`.

    What the kernel says is the account that connected, whatever holds the socket now.
    """
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    _, uid, _ = _PEER.unpack(raw)
    if uid not in allowed:
        raise refusals.Refused(
            refusals.Code.NOT_PERMITTED, f"The root helper serves the Agent, and not uid {uid}."
        )


def read(connection: socket.socket, *, seconds: float = READ_SECONDS) -> Request:
    """The request; raises `Refused`, and `OSError` where the other end is gone."""
    line = bytearray()
    end = time.monotonic() + seconds
    with contextlib.ExitStack() as received:
        descriptors: list[int] = []
        while not line.endswith(b"\n"):
            left = end - time.monotonic()
            if left <= 0:
                raise refusals.Refused(refusals.Code.MALFORMED, "The request did not come in time.")
            connection.settimeout(left)
            try:
                piece, came = _receive(connection, most=helper.MAX_LINE_BYTES + 1 - len(line))
            except TimeoutError:
                continue
            for one in came:
                received.callback(os.close, one)
            descriptors += came
            line += piece
            if not piece or len(line) > helper.MAX_LINE_BYTES:
                what = "too long" if piece else "cut short"
                raise refusals.Refused(refusals.Code.MALFORMED, f"The request is {what}.")
        if len(descriptors) > 1:
            raise refusals.Refused(refusals.Code.MALFORMED, "One file is passed at most.")
        try:
            verb, fields = helper.parse_verb(bytes(line))
        except strict_json.Malformed as error:
            raise refusals.Refused(refusals.Code.MALFORMED, str(error)) from error
        received.pop_all()
        return Request(verb=verb, fields=fields, descriptor=next(iter(descriptors), None))


def _receive(connection: socket.socket, *, most: int) -> tuple[bytes, list[int]]:
    """As `socket.recv_fds`, with descriptors that no child inherits from the first moment on."""
    numbers = array.array("i")
    room = socket.CMSG_SPACE(_MOST_DESCRIPTORS * numbers.itemsize)
    piece, beside, _, _ = connection.recvmsg(most, room, socket.MSG_CMSG_CLOEXEC)
    for level, kind, data in beside:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            numbers.frombytes(data[: len(data) - len(data) % numbers.itemsize])
    return piece, list(numbers)
