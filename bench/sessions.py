"""10,000 idle sessions at one gateway: resident memory of each, and what their heartbeats cost.

A real Platform whose store is filled beforehand with as many nodes, each with a key of its own; the
agents are real links in processes of their own. Memory is the engine's, so the gateway's share of
it and the store's page cache count as well; the first sessions are opened before the first look,
since they load code that is loaded once.
"""

import contextlib
import dataclasses
import pathlib
import tempfile
import time

import psutil

from bench import _crowd, agents, limits, report
from tests.support import real_platform
from wire_protocol import heartbeats

WARM = 100
FEW = 1_000
MANY = 10_000
EVERY_SECONDS = _crowd.EVERY_SECONDS
SETTLE_SECONDS = 30.0  # one heartbeat of each
BEAT_SECONDS = 60.0
PAUSE_SECONDS = 0.003  # between two of 333 heartbeats a second
REPEATS = 400
QUIET_SECONDS = 20.0  # far below the silence at which a session ends
KIB = 1024


def main() -> None:
    """Runs the bench and prints its figures."""
    as_json = report.wants_json()
    with tempfile.TemporaryDirectory(prefix="enlist-bench-", dir="/var/tmp") as name:
        figures = measure(pathlib.Path(name))
    report.show("sessions", figures, as_json=as_json)


def measure(folder: pathlib.Path) -> list[report.Figure]:
    """Memory at 1,000 and 10,000 sessions, and the CPU of the heartbeats of all."""
    nodes = agents.fill(folder, count=WARM + MANY)
    with (
        real_platform.running(folder / "platform") as platform,
        contextlib.ExitStack() as stack,
    ):
        engine = platform.child("platform_server engine")
        crowds = [
            stack.enter_context(agents.running(folder, platform, nodes=share, number=number))
            for number, share in enumerate(agents.shares(nodes))
        ]
        agents.tell(crowds, {"open": WARM // agents.CROWDS})
        agents.tell(crowds, {"rest": SETTLE_SECONDS})
        empty = _memory(engine)
        first = _open(crowds, engine, count=FEW)
        agents.tell(crowds, {"rest": SETTLE_SECONDS})
        few = (_memory(engine) - empty) / FEW
        rest = _open(crowds, engine, count=MANY - FEW)
        agents.tell(crowds, {"rest": SETTLE_SECONDS})
        many = (_memory(engine) - empty) / MANY
        spent = limits.cpu_of([engine])
        beats = agents.tell(crowds, {"rest": BEAT_SECONDS})
        busy = limits.cpu_of([engine]) - spent
        took = max(one["seconds"] for one in beats)
        after = (_memory(engine) - empty) / MANY
        cold = _cold_ratio()
        spent = limits.cpu_of([engine])
        agents.tell(crowds, {"quiet": QUIET_SECONDS})
        idle = (limits.cpu_of([engine]) - spent) / QUIET_SECONDS
    assert not any(one["ended"] for one in beats), "Sessions ended meanwhile"
    sent = sum(one["sent"] for one in beats)
    beat = (busy - idle * took) / sent
    early, late = first.each(beat=beat, idle=idle), rest.each(beat=beat, idle=idle)
    share = busy / sent * (MANY + WARM) / EVERY_SECONDS
    return [
        report.Figure(
            name="kib_few", value=few / KIB, unit="KiB", at_most=50,
            meaning=f"resident memory of each of {FEW:,} idle sessions",
        ),
        report.Figure(
            name="kib_many", value=many / KIB, unit="KiB", at_most=50,
            meaning=f"of each of {MANY:,}",
        ),
        report.Figure(
            name="kib_beating", value=after / KIB, unit="KiB", at_most=50,
            meaning=f"the same after {BEAT_SECONDS:g} s of heartbeats",
        ),
        report.Figure(
            name="memory_ratio", value=many / few, unit="x", at_most=1.1,
            meaning=f"of each of {MANY:,} over each of {FEW:,}: flat is 1",
        ),
        report.Figure(
            name="heartbeat_share", value=100 * share, unit="%", at_most=15,
            meaning=f"of one core, {MANY + WARM:,} sessions with a heartbeat every "
            f"{EVERY_SECONDS:g} s, everything the engine does meanwhile included",
        ),
        report.Figure(
            name="cold_ratio", value=cold, unit="x",
            meaning="one reading of a heartbeat every 3 ms over the same at one go, here: what "
            "neighbours on the same cores take away raises it, and heartbeat_share with it",
        ),
        report.Figure(
            name="idle_share", value=100 * idle, unit="%",
            meaning="of one core, the same sessions without heartbeats",
        ),
        report.Figure(
            name="heartbeat_cpu", value=1e6 * beat, unit="us",
            meaning="CPU of one heartbeat, read, judged, kept and written in batches",
        ),
        report.Figure(
            name="opening_cpu", value=1000 * late, unit="ms",
            meaning="CPU of one opening: handshake, hello, confirm, health, two commits",
        ),
        report.Figure(
            name="opening_ratio", value=late / early, unit="x", at_most=1.2,
            meaning=f"that up to {MANY:,} sessions over that up to {FEW:,}",
        ),
        report.Figure(
            name="slowest", value=max(one["slowest"] for one in beats), unit="s",
            meaning="the slowest answer to a heartbeat, as the crowds saw it",
        ),
        report.Figure(
            name="openings", value=rest.count / rest.seconds, unit="/s",
            meaning="sessions opened a second, the crowds on the same cores",
        ),
    ]  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class _Opened:
    """What so many openings cost the engine, the heartbeats meanwhile included."""

    count: int
    cpu: float
    beats: int
    seconds: float

    def each(self, *, beat: float, idle: float) -> float:
        """CPU of one opening alone."""
        return (self.cpu - self.beats * beat - self.seconds * idle) / self.count


def _open(crowds: list[agents.Crowd], engine: psutil.Process, *, count: int) -> _Opened:
    spent = limits.cpu_of([engine])
    said = agents.tell(crowds, {"open": count // agents.CROWDS})
    return _Opened(
        count=count,
        cpu=limits.cpu_of([engine]) - spent,
        beats=sum(one["sent"] for one in said),
        seconds=max(one["seconds"] for one in said),
    )


def _cold_ratio() -> float:
    """How much dearer the same work is with pauses in which others use the core."""
    body = _crowd.heartbeat("0" * 16)
    each = []
    for pause in (0.0, PAUSE_SECONDS):
        spent = 0.0
        for _ in range(REPEATS):
            time.sleep(pause)
            began = time.thread_time()
            heartbeats.parse(body)
            spent += time.thread_time() - began
        each.append(spent / REPEATS)
    return each[1] / each[0]


def _memory(engine: psutil.Process) -> int:
    return int(engine.memory_info().rss)


if __name__ == "__main__":
    main()
