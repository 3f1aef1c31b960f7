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
_ROOM_FOR_DESCRIPTORS = 2  # one is wanted; of more the kernel hands over no third
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


def peer_of(connection: socket.socket) -> int:
    """The account at the other end.

    What the kernel says is the account that connected, whatever holds the socket now.
    """
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    _, uid, _ = _PEER.unpack(raw)
    return int(uid)


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
                came = _receive(connection, most=helper.MAX_LINE_BYTES + 1 - len(line))
            except TimeoutError:
                continue
            for one in came.descriptors:
                received.callback(os.close, one)
            descriptors += came.descriptors
            # At once, and not at the line's end: whoever sends a byte at a time sends files with
            # each, and what one asker holds open is what another cannot open.
            if len(descriptors) > 1 or came.is_cut:
                raise refusals.Refused(refusals.Code.MALFORMED, "One file is passed at most.")
            line += came.piece
            if not came.piece or len(line) > helper.MAX_LINE_BYTES:
                what = "too long" if came.piece else "cut short"
                raise refusals.Refused(refusals.Code.MALFORMED, f"The request is {what}.")
        try:
            verb, fields = helper.parse_verb(bytes(line))
        except strict_json.Malformed as error:
            raise refusals.Refused(refusals.Code.MALFORMED, str(error)) from error
        received.pop_all()
        return Request(verb=verb, fields=fields, descriptor=next(iter(descriptors), None))


@dataclasses.dataclass(frozen=True, slots=True)
class _Came:
    piece: bytes
    descriptors: tuple[int, ...]
    is_cut: bool  # more came beside it than there was room for, or than can be open at once


def _receive(connection: socket.socket, *, most: int) -> _Came:
    """As `socket.recv_fds`, with descriptors that no child inherits from the first moment on."""
    numbers = array.array("i")
    room = socket.CMSG_SPACE(_ROOM_FOR_DESCRIPTORS * numbers.itemsize)
    piece, beside, flags, _ = connection.recvmsg(most, room, socket.MSG_CMSG_CLOEXEC)
    for level, kind, data in beside:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            numbers.frombytes(data[: len(data) - len(data) % numbers.itemsize])
    return _Came(piece, tuple(numbers), bool(flags & socket.MSG_CTRUNC))
