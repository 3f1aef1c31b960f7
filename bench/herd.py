"""How a thousand agents come back to a Platform that was killed and started five seconds later.

Each session that ends is opened again in the Agent's own pace (`worker_agent.session.pace`) over
new TLS connections. Held against the field's fault, in which all come back in one second (lesson
F12): the fullest tenth of a second against the mean one, from the first return to the last.

Known limit: agents and Platform share the machine, so a busy one stretches the returns.
"""

import collections
import contextlib
import dataclasses
import os
import pathlib
import signal
import tempfile
import time

from bench import agents, report
from tests.support import machine, real_platform

AGENTS = 1_000
AWAY_SECONDS = 5.0
BACK_SECONDS = 60.0
BUCKET_SECONDS = 0.1
LOOK_SECONDS = 0.5
PEAK_BOUND = 3.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Return:
    """What was seen. Moments in seconds since the Platform was started again."""

    back: list[float]
    refused: list[str]
    missed: int
    served_after: float


def main() -> None:
    """Runs it once and prints the figures."""
    as_json = report.wants_json()
    with tempfile.TemporaryDirectory(prefix="enlist-bench-", dir="/var/tmp") as name:
        seen = _run(pathlib.Path(name))
    report.show("herd", _figures(seen), as_json=as_json)


def _run(folder: pathlib.Path) -> Return:
    nodes = agents.fill(folder, count=AGENTS)
    port = str(machine.free_port())
    with contextlib.ExitStack() as stack:
        platform = real_platform.start(folder / "platform", "--gateway-port", port)
        crowds = [
            stack.enter_context(agents.running(folder, platform, nodes=share, number=number))
            for number, share in enumerate(agents.shares(nodes))
        ]
        agents.tell(crowds, {"open": AGENTS // agents.CROWDS})
        agents.tell(crowds, {"stay": True})
        os.killpg(platform.process.pid, signal.SIGKILL)
        platform.process.wait()
        real_platform.close(platform.process)
        time.sleep(AWAY_SECONDS)
        started = time.perf_counter()
        again = real_platform.start(folder / "platform", "--gateway-port", port)
        stack.callback(again.stop)
        served = time.perf_counter()
        return _come_back(crowds, started=started, served_after=served - started)


def _come_back(crowds: list[agents.Crowd], *, started: float, served_after: float) -> Return:
    while True:
        said = agents.tell(crowds, {"back": True})
        back = sorted(at - started for one in said for at in one["back"])
        if len(back) >= AGENTS or time.perf_counter() - started > 2 * BACK_SECONDS:
            return Return(
                back=back,
                refused=[code for one in said for code in one["refused"]],
                missed=sum(one["missed"] for one in said),
                served_after=served_after,
            )
        time.sleep(LOOK_SECONDS)


def _figures(seen: Return) -> list[report.Figure]:
    buckets = collections.Counter(int(at / BUCKET_SECONDS) for at in seen.back)
    first, last = min(buckets), max(buckets)
    mean = len(seen.back) / (last - first + 1)
    return [
        report.Figure(
            name="back", value=len(seen.back), unit="agents",
            meaning=f"of {AGENTS:,} that came back",
        ),
        report.Figure(
            name="last_back", value=seen.back[-1], unit="s", at_most=BACK_SECONDS,
            meaning="from the Platform's start to the last session that is open again",
        ),
        report.Figure(
            name="peak_over_mean", value=max(buckets.values()) / mean, unit="x",
            at_most=PEAK_BOUND, meaning="the fullest tenth of a second over the mean one",
        ),
        report.Figure(
            name="refused", value=len(seen.refused), unit="tries", at_most=0,
            meaning="hellos that the Platform refused; none may be",
        ),
        report.Figure(
            name="missed", value=seen.missed, unit="tries",
            meaning="tries that found nobody, nearly all while the Platform was away",
        ),
        report.Figure(
            name="served_after", value=seen.served_after, unit="s",
            meaning="the Platform's own start",
        ),
    ]  # fmt: skip


if __name__ == "__main__":
    main()
