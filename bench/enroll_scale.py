"""One enrollment with 100 nodes registered and with 100,000: the cost may not grow.

Two Platforms on one disk, one store filled by hand beforehand. One enrollment after the other, in
turn on both, so that a slow moment of the machine falls on both.
"""

import pathlib
import sqlite3
import tempfile

from bench import enrolling, report
from tests.support import real_platform

SIZES = (100, 100_000)
ROUNDS = 8
EACH = 50


def main() -> None:
    """Runs the bench and prints its figures."""
    as_json = report.wants_json()
    with tempfile.TemporaryDirectory(prefix="enlist-bench-", dir="/var/tmp") as name:
        report.show("enroll-scale", measure(pathlib.Path(name)), as_json=as_json)


def measure(folder: pathlib.Path) -> list[report.Figure]:
    """The two p99 and their ratio."""
    for size in SIZES:
        _fill(folder / str(size), nodes=size)
    slowest: dict[int, list[float]] = {size: [] for size in SIZES}
    with (
        real_platform.running(folder / str(SIZES[0])) as few,
        real_platform.running(folder / str(SIZES[1])) as many,
    ):
        for turn in range(ROUNDS):
            for size, platform in zip(SIZES, (few, many), strict=True):
                requests = enrolling.bodies(platform, count=EACH, prefix=f"turn-{turn}")
                answer = enrolling.send(platform, requests=requests, in_flight=1)
                slowest[size].append(answer["p99"])
    middle = {size: sorted(values)[len(values) // 2] for size, values in slowest.items()}
    return [
        report.Figure(
            name="scale_ratio", value=middle[SIZES[1]] / middle[SIZES[0]], unit="x", at_most=1.3,
            meaning=f"p99 of one enrollment with {SIZES[1]:,} nodes over that with {SIZES[0]}, "
            f"median of {ROUNDS} rounds of {EACH}",
        ),
        *(
            report.Figure(
                name=f"p99_{size}", value=middle[size], unit="s",
                meaning=f"with {size:,} nodes registered",
            )
            for size in SIZES
        ),
    ]  # fmt: skip


def _fill(data_dir: pathlib.Path, *, nodes: int) -> None:
    """Registers nodes by copying one that enrolled for real."""
    with real_platform.running(data_dir) as platform:
        requests = enrolling.bodies(platform, count=2, prefix="seed")
        enrolling.send(platform, requests=requests, in_flight=1)
    store = sqlite3.connect(data_dir / "enlist.db")
    try:
        columns = [row[1] for row in store.execute("PRAGMA table_info(nodes)")]
        own = {"node_id", "pin", "certificate_sha256"}
        copied = ", ".join(
            f"{column} || '-' || ?" if column in own else column for column in columns
        )
        statement = (
            f"INSERT INTO nodes ({', '.join(columns)}) "  # noqa: S608 - the names are the table's own
            f"SELECT {copied} FROM nodes WHERE node_id = 'seed-0'"
        )
        store.executemany(statement, ([n] * len(own & set(columns)) for n in range(nodes - 2)))
        store.commit()
    finally:
        store.close()


if __name__ == "__main__":
    main()
