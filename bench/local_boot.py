"""From `machines create` on this host to `active`, against the bare boot of the same image.

Both on the product's own driver, in turn, three times each; the ratio is of the medians. Then as
many at once as `--at-once` says, or as this host lets run where that is fewer.
Needs root and what tests/support/machines/local names. Known limit: Platform and machines share
the cores, so the seconds are a quiet machine's at best; the ratio is what to compare.
"""

import argparse
import datetime
import pathlib
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence

from bench import report
from provisioning import contract
from provisioning.local import host, machines
from tests.support.machines import local

ROUNDS = 3
AT_ONCE = 20
AT_MOST_RATIO = 3.0
BOOT_SECONDS = 300.0
PACE_SECONDS = 0.05


def main() -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    parser.add_argument("--at-once", type=int, default=AT_ONCE)
    given = parser.parse_args()
    reason = local.why_not()
    if reason is not None:
        sys.stderr.write(f"No machine can be made here: {reason}\n")
        return 2
    local.ensure_image()
    with (
        tempfile.TemporaryDirectory() as folder,
        local.alone(),
        local.opened(pathlib.Path(folder)) as laptop,
    ):
        figures = _figures(laptop, at_once=given.at_once)
        report.show("local-boot", figures, as_json=given.output == "json")
    return 0


def _figures(laptop: local.Laptop, *, at_once: int) -> list[report.Figure]:
    bare, active = [], []
    for turn in range(ROUNDS):
        bare.append(_bare_boot(laptop.places, turn))
        active.append(_order(laptop, f"turn-{turn}"))
    count = min(at_once, host.room(machines.Kind.NSPAWN, present=()))
    sys.stderr.write(f"bare {_listed(bare)} s, active {_listed(active)} s; {count} at once ...\n")
    many = _at_once(laptop, count)
    return [
        report.Figure(
            name="ratio",
            value=statistics.median(active) / statistics.median(bare),
            unit="",
            meaning="ordered to active, over the bare boot of the same image",
            at_most=AT_MOST_RATIO,
        ),
        report.Figure(
            name="active", value=statistics.median(active), unit="s", meaning="ordered to active"
        ),
        report.Figure(
            name="bare",
            value=statistics.median(bare),
            unit="s",
            meaning="started until its boot is done, with empty user data",
        ),
        report.Figure(
            name=f"active_of_{count}",
            value=many,
            unit="s",
            meaning=f"{count} ordered at once until the last is active",
        ),
    ]


def _listed(seconds: Sequence[float]) -> str:
    return ", ".join(f"{one:.1f}" for one in seconds)


def _bare_boot(places: host.Places, turn: int) -> float:
    here = host.Host(places)
    owner = contract.Owner(
        installation="bench", infra="default", operation=f"bare{turn}", node="bare", attempt=1
    )
    wish = machines.Wish(
        kind=machines.Kind.NSPAWN,
        owner=owner,
        size="small",
        image=local.IMAGE,
        network=local.NETWORK,
        first_boot="#cloud-config\n{}\n",
    )
    started = time.monotonic()
    here.create(wish, now=datetime.datetime.now(tz=datetime.UTC))
    guest = local.Guest(places.folder / wish.name)
    try:
        local.wait(guest.booted, until=bool, what="it has booted", seconds=BOOT_SECONDS)
        return time.monotonic() - started
    finally:
        here.delete(wish.name)


def _order(laptop: local.Laptop, node: str) -> float:
    started = time.monotonic()
    _ordered(laptop, node)
    _wait_active(laptop, node)
    took = time.monotonic() - started
    laptop.run("cloud", "machines", "delete", node, "--wait")
    return took


def _at_once(laptop: local.Laptop, count: int) -> float:
    nodes = [f"many-{number}" for number in range(count)]
    started = time.monotonic()
    for node in nodes:
        _ordered(laptop, node)
    for node in nodes:
        _wait_active(laptop, node)
    took = time.monotonic() - started
    for node in nodes:
        laptop.run("cloud", "machines", "delete", node)
    local.wait(
        lambda: [one.machine.name for one in host.Host(laptop.places).all()] or ["none"],
        until=lambda left: left == ["none"],
        what="all are gone",
        seconds=BOOT_SECONDS,
    )
    return took


def _ordered(laptop: local.Laptop, node: str) -> None:
    laptop.platform.api("POST", "/cloud/machines", {"node_id": node, "provider": "local"})


def _wait_active(laptop: local.Laptop, node: str) -> None:
    local.wait(
        lambda: laptop.platform.api("GET", f"/cloud/machines/{node}"),
        until=lambda found: found["state"] == "active",
        what=f"{node} is active",
        seconds=BOOT_SECONDS,
    )


if __name__ == "__main__":
    sys.exit(main())
