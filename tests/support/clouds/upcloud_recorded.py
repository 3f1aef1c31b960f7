"""A referee that holds the fake UpCloud, and what is sent to it, to recorded exchanges.

Kinds are told apart by method and path. Every field of an answer must stand in a recorded answer of
its kind with a value of that type, or in the short list of what no recording could show; what every
recorded object at a place has must be there, and the status must be a recorded one. A request may
hold what a recorded request held, and what is listed here with its reason.

Known limit: the recordings hold no refusals, and nothing of the account, templates, addresses,
single storages, attaching and backups; none of that is checked.
"""

import functools
import re
from collections.abc import Mapping
from typing import Any, Final

from tests.support.clouds import recorded_shapes as shapes
from tests.support.clouds import recordings, referee, server

_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_REFUSED: Final = 400
_ANSWERED: Final[Mapping[str, frozenset[str]]] = {
    # no recorded list holds a backup, which alone tells what it was taken of
    "GET /1.3/storage/private": frozenset({"storages.storage[].origin"}),
}
_SENT: Final[Mapping[str, frozenset[str]]] = {
    "POST /1.3/server": frozenset(
        {
            # the recorded orders name none, and are answered as the plan "custom"
            "server.plan",
            # they bring no first-boot data
            "server.user_data",
            # they name neither user nor key: root is answered, with a password made for it
            "server.login_user",
        }
    ),
}


@functools.cache
def exchanges() -> dict[str, tuple[recordings.Exchange, ...]]:
    """All recorded exchanges by their kind; skips the test where there are none."""
    found: dict[str, list[recordings.Exchange]] = {}
    for path in sorted((recordings.folder() / "upcloud-cassettes").glob("*.yaml")):
        for one in recordings.exchanges(path.stem):
            found.setdefault(kind_of(one.method, one.path.partition("?")[0]), []).append(one)
    return {kind: tuple(ones) for kind, ones in found.items()}


def kind_of(method: str, path: str) -> str:
    """Method and path, with {uuid} for each id."""
    return f"{method} {_UUID.sub('{uuid}', path.rstrip('/'))}"


def is_here() -> bool:
    """Whether there are recordings."""
    return (referee.folder() / "upcloud-cassettes").is_dir()


class Referee:
    """Holds every exchange of a recorded kind to the recorded ones."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.checked = 0

    def check(self, asked: server.Asked, reply: server.Reply, *, address: str) -> None:
        """Writes down what no recorded exchange shows."""
        del address
        kind = kind_of(asked.method, asked.path)
        if kind not in exchanges():
            return
        if asked.body:
            self._check_request(kind, asked.json())
        if reply.status < _REFUSED:
            self._check_answer(kind, reply)

    def _check_request(self, kind: str, sent: Any) -> None:
        found = shapes.strangers(sent, _asked(kind), allowed=_SENT.get(kind, frozenset()))
        self.faults += [f"{kind}, request: {one}" for one in found]

    def _check_answer(self, kind: str, reply: server.Reply) -> None:
        self.checked += 1
        statuses = {one.status for one in exchanges()[kind]}
        if reply.status not in statuses:
            self.faults.append(f"{kind}: answered {reply.status}, recorded {statuses}")
        known, common = _answered(kind)
        allowed = _ANSWERED.get(kind, frozenset())
        found = [*shapes.strangers(reply.document, known, allowed=allowed)]
        found += shapes.missing(reply.document, common)
        self.faults += [f"{kind}: {one}" for one in found]


@functools.cache
def _asked(kind: str) -> shapes.Shape:
    return shapes.known(one.sent for one in exchanges()[kind])


@functools.cache
def _answered(kind: str) -> tuple[shapes.Shape, shapes.Shape]:
    told = [one.answered for one in exchanges()[kind]]
    return shapes.known(told), shapes.common(told)
