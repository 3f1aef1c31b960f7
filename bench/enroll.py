"""Complete enrollments over new TLS connections with durable commits, against the limits.

`cpu_ratio`: CPU of all the Platform's processes per enrollment over openssl's CPU per new TLS 1.3
connection, 64 in flight both times, in one run.
"""

import pathlib
import statistics
import tempfile

from bench import enrolling, limits, report
from tests.support import real_platform

ENROLLMENTS = 2000
IN_FLIGHT = 64
WARM_UP = 128
OPENSSL_CONNECTIONS = 1500


def main() -> None:
    """Runs the bench and prints its figures."""
    as_json = report.wants_json()
    with tempfile.TemporaryDirectory(prefix="enlist-bench-", dir="/var/tmp") as name:
        report.show("enroll", measure(pathlib.Path(name)), as_json=as_json)


def measure(folder: pathlib.Path) -> list[report.Figure]:
    """All figures, in one run on one disk."""
    before = limits.openssl_handshakes(folder, connections=OPENSSL_CONNECTIONS, in_flight=IN_FLIGHT)
    commits = limits.durable_commits_per_second(folder, commits=500)
    with real_platform.running(folder / "platform") as platform:
        enrolling.send(
            platform,
            requests=enrolling.bodies(platform, count=WARM_UP, prefix="warm"),
            in_flight=IN_FLIGHT,
        )
        requests = enrolling.bodies(platform, count=ENROLLMENTS, prefix="node")
        spent = -platform.cpu_seconds()
        answer = enrolling.send(platform, requests=requests, in_flight=IN_FLIGHT)
        spent += platform.cpu_seconds()
    after = limits.openssl_handshakes(folder, connections=OPENSSL_CONNECTIONS, in_flight=IN_FLIGHT)
    openssl = statistics.mean([before.cpu_seconds_each, after.cpu_seconds_each])
    each = spent / ENROLLMENTS
    rate = ENROLLMENTS / answer["seconds"]
    return [
        report.Figure(
            name="cpu_ratio", value=each / openssl, unit="x", at_most=2.5,
            meaning="Platform CPU per enrollment over openssl's per TLS 1.3 connection",
        ),
        report.Figure(
            name="p99", value=answer["p99"], unit="s", at_most=0.4,
            meaning=f"slowest of a hundred enrollments, {IN_FLIGHT} in flight",
        ),
        report.Figure(
            name="commit_ratio", value=rate / commits, unit="x",
            meaning="enrollments a second over raw durable commits a second; above 1 means that "
            "group commit keeps the disk from being the limit",
        ),
        report.Figure(name="p50", value=answer["p50"], unit="s", meaning="median enrollment"),
        report.Figure(
            name="enrollments", value=rate, unit="/s",
            meaning="on this machine, client and Platform sharing its cores",
        ),
        report.Figure(
            name="platform_cpu", value=each * 1000, unit="ms", meaning="CPU per enrollment"
        ),
        report.Figure(
            name="openssl_cpu", value=openssl * 1000, unit="ms", meaning="CPU per connection"
        ),
        report.Figure(
            name="raw_commits", value=commits, unit="/s", meaning="durable SQLite commits alone"
        ),
    ]  # fmt: skip


if __name__ == "__main__":
    main()
