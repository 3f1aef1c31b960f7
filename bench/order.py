"""How soon an order is at its node: from the answer of its POST to its arrival on the session.

1,000 sessions; each node is given one order, `IN_FLIGHT` at once. On one SQLite engine, and across
two engines on one PostgreSQL: given at the one, all sessions on the other. Held against the time of
a ping over such a session in the same run. An order may be there before its POST is answered; that
counts as no time at all.

The clock is the machine's own, which all processes here share. The nodes answer at once with a
result: what an Agent's disk needs is the Agent's and not counted.
"""

import contextlib
import dataclasses
import http.client
import json
import pathlib
import shutil
import socket
import sys
import tempfile
import threading
import time
from typing import Any

from bench import agents, report
from tests.support import postgres, real_platform

SESSIONS = 1_000
IN_FLIGHT = 2
WARM = 40
ARRIVE_SECONDS = 20.0
LOOK_SECONDS = 1.0
BOUND_MS = 50.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Of every order, in seconds; `trips` are pings, `posts` how long each POST took."""

    late: list[float]
    trips: list[float]
    posts: list[float]


def main() -> None:
    """Runs both and prints the figures."""
    as_json = report.wants_json()
    with tempfile.TemporaryDirectory(prefix="enlist-bench-", dir="/var/tmp") as name:
        folder = pathlib.Path(name)
        figures = _figures("sqlite", _one_engine(_made(folder / "sqlite")))
        try:
            with postgres.running_server() as server:
                across = _across_two(_made(folder / "postgresql"), url=server.new_database())
                figures += _figures("across", across)
        except postgres.Unavailable as reason:
            print(f"Across two engines nothing was measured: {reason}", file=sys.stderr)
    report.show("order", figures, as_json=as_json)


def _one_engine(folder: pathlib.Path) -> Times:
    nodes = agents.fill(folder, count=SESSIONS)
    with real_platform.running(folder / "platform") as platform:
        return _measure(folder, holder=platform, giver=platform, nodes=nodes)


def _across_two(folder: pathlib.Path, *, url: str) -> Times:
    nodes = agents.fill(folder, count=SESSIONS, database_url=url)
    second = folder / "second"
    second.mkdir(mode=0o700)
    shutil.copy2(folder / "platform" / "master.key", second / "master.key")
    with (
        real_platform.running(folder / "platform", database_url=url) as holder,
        real_platform.running(second, database_url=url) as giver,
    ):
        return _measure(folder, holder=holder, giver=giver, nodes=nodes)


def _measure(
    folder: pathlib.Path,
    *,
    holder: real_platform.RealPlatform,
    giver: real_platform.RealPlatform,
    nodes: list[dict[str, str]],
) -> Times:
    with contextlib.ExitStack() as stack:
        crowds = [
            stack.enter_context(agents.running(folder, holder, nodes=share, number=number))
            for number, share in enumerate(agents.shares(nodes))
        ]
        agents.tell(crowds, {"open": SESSIONS // agents.CROWDS})
        names = [node["node_id"] for node in nodes]
        _give_all(giver, names[:WARM])
        before = _arrived(crowds, count=WARM)
        given = _give_all(giver, names)
        after = _arrived(crowds, count=WARM + SESSIONS)
    arrived = {key: at for key, at in after["arrived"].items() if key not in before["arrived"]}
    return Times(
        late=[max(0.0, at - given[key][1]) for key, at in arrived.items()],
        trips=after["trips"],
        posts=[answered - asked for asked, answered in given.values()],
    )


def _give_all(
    platform: real_platform.RealPlatform, names: list[str]
) -> dict[str, tuple[float, float]]:
    """Gives each node an order; by node and sequence when it was asked for and when answered."""
    waiting, given = list(names), {}

    def work() -> None:
        connection = _Local(platform.socket)
        while waiting:
            try:
                name = waiting.pop()
            except IndexError:
                break
            asked = time.perf_counter()
            answer = connection.post(f"/api/v1/nodes/{name}/orders", {"kind": "refresh-trust"})
            given[f"{name}:{answer['sequence']}"] = (asked, time.perf_counter())
        connection.close()

    threads = [threading.Thread(target=work) for _ in range(IN_FLIGHT)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(given) == len(names), "an order was not answered"
    return given


class _Local(http.client.HTTPConnection):
    """One kept connection to the local socket."""

    def __init__(self, path: pathlib.Path) -> None:
        super().__init__("platform", timeout=30)
        self._path = path

    def connect(self) -> None:
        """Over the socket's path."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(30)
        self.sock.connect(str(self._path))

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The answer, which must be that the order is stored."""
        self.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = self.getresponse()
        content = json.loads(answer.read())
        assert answer.status == http.client.CREATED, content
        assert isinstance(content, dict)
        return content


def _arrived(crowds: list[agents.Crowd], *, count: int) -> dict[str, Any]:
    """What has arrived, once so many have."""
    until = time.monotonic() + ARRIVE_SECONDS
    while True:
        said = agents.tell(crowds, {"arrived": True})
        arrived = {key: at for one in said for key, at in one["arrived"].items()}
        if len(arrived) >= count:
            return {"arrived": arrived, "trips": [trip for one in said for trip in one["trips"]]}
        assert time.monotonic() < until, f"{count - len(arrived)} orders did not arrive"
        time.sleep(LOOK_SECONDS)


def _figures(where: str, times: Times) -> list[report.Figure]:
    trip = _at(times.trips, 0.5)
    over = 1000 * (_at(times.late, 0.99) - trip)
    how = {"sqlite": "one engine on SQLite", "across": "given at another engine, PostgreSQL"}[where]
    return [
        report.Figure(
            name=f"{where}_over_p99", value=over, unit="ms", at_most=BOUND_MS,
            meaning=f"p99 from the POST's answer to the arrival, less a round trip; {how}, "
            f"{SESSIONS:,} sessions, {IN_FLIGHT} in flight",
        ),
        report.Figure(
            name=f"{where}_p99", value=1000 * _at(times.late, 0.99), unit="ms",
            meaning="the same whole",
        ),
        report.Figure(
            name=f"{where}_p50", value=1000 * _at(times.late, 0.5), unit="ms", meaning="its median",
        ),
        report.Figure(
            name=f"{where}_ratio", value=_at(times.late, 0.5) / trip, unit="x",
            meaning="its median over the median round trip",
        ),
        report.Figure(
            name=f"{where}_trip", value=1000 * trip, unit="ms",
            meaning="a ping over such a session, median",
        ),
        report.Figure(
            name=f"{where}_post_p50", value=1000 * _at(times.posts, 0.5), unit="ms",
            meaning="the POST itself: signed, stored, two events and an audit entry",
        ),
    ]  # fmt: skip


def _at(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def _made(folder: pathlib.Path) -> pathlib.Path:
    folder.mkdir()
    return folder


if __name__ == "__main__":
    main()
