"""How long the command line takes to answer, against `python -c pass`.

`--help` may take 6 times as long, `nodes list` 20 times. Pairs are taken in turn, so that a
machine that slows down slows both.
"""

import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from bench import report
from tests.support import real_platform

ROUNDS = 15


def main() -> None:
    """Runs the bench and prints its figures."""
    as_json = report.wants_json()
    with tempfile.TemporaryDirectory(prefix="enlist-bench-") as name:
        data_dir = pathlib.Path(name) / "platform"
        with real_platform.running(data_dir):
            report.show("cli", measure(data_dir), as_json=as_json)


def measure(data_dir: pathlib.Path) -> list[report.Figure]:
    """Medians of paired ratios."""
    enlist = str(pathlib.Path(sys.executable).with_name("enlist"))
    commands = {
        "help": (6.0, [enlist, "--help"]),
        "nodes_list": (20.0, [enlist, "--data-dir", str(data_dir), "nodes", "list"]),
    }
    figures = []
    for name, (bound, command) in commands.items():
        ratios = []
        for _ in range(ROUNDS):
            alone = _seconds([sys.executable, "-c", "pass"])
            ratios.append(_seconds(command) / alone)
        figures.append(
            report.Figure(
                name=f"{name}_ratio", value=statistics.median(ratios), unit="x", at_most=bound,
                meaning=f"time of `enlist {name.replace('_', ' ')}` over `python -c pass`, "
                f"median of {ROUNDS} pairs",
            )
        )  # fmt: skip
    return figures


def _seconds(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
