"""Calls to each provider for one machine: from the order to an active node, an idle hour, its end.

The engine and the provider's own driver over its fake, by a clock that is moved and not waited for;
so it counts and takes no seconds. The machine boots within a minute of that clock. A poll storm
would show here: the idle hour is held against a tenth of the narrowest hourly budget, Hetzner's
3,600 for a whole project, for one machine at each provider and for a fleet of 40 at Hetzner.

Known limit: fakes run what they accept within a minute; a provider that takes longer is polled for
longer, in growing steps.
"""

import asyncio
import pathlib
import sys
import tempfile

from bench import report
from platform_server.store import opening
from tests.support import machine_lives
from tests.support.clouds import bench as clouds

IDLE_SECONDS = 3600
ROUND_SECONDS = 10.0
FLEET_AT = "hetzner"
FLEET = 40
MOST_COMING = 60
MOST_IDLE = 360
MOST_GOING = 25


async def _life(name: str, folder: pathlib.Path) -> tuple[int, int, int]:
    """How many calls the three parts of one machine's life made."""
    store = await opening.open_store(f"sqlite:///{folder}/{name}.db")
    try:
        with clouds.open_bench(name) as bench:
            life = await machine_lives.build(store, folder=folder, bench=bench)
            made = await life.ordered()
            await life.until(made, "booting")
            guest = await life.guest(made)
            assert await guest.joins() == 201
            await life.until(made, "active")
            coming = len(bench.ledger.seen)
            for _ in range(int(IDLE_SECONDS / ROUND_SECONDS)):
                await life.carry_on(rounds=1, seconds=ROUND_SECONDS)
            idle = len(bench.ledger.seen) - coming
            assert await life.end(made) == "deleted"
            assert bench.ledger.living() == []
            going = len(bench.ledger.seen) - coming - idle
    finally:
        await store.close()
    return coming, idle, going


async def _fleet(folder: pathlib.Path) -> int:
    """How many calls an idle hour makes with a whole fleet at Hetzner."""
    store = await opening.open_store(f"sqlite:///{folder}/fleet.db")
    try:
        with clouds.open_bench(FLEET_AT) as bench:
            life = await machine_lives.build(store, folder=folder, bench=bench)
            for number in range(FLEET):
                made = await life.ordered(f"web-{number}")
                await life.until(made, "booting")
                guest = await life.guest(made)
                assert await guest.joins() == 201
                await life.until(made, "active")
            assert len(bench.ledger.living()) == FLEET
            before = len(bench.ledger.seen)
            for _ in range(int(IDLE_SECONDS / ROUND_SECONDS)):
                await life.carry_on(rounds=1, seconds=ROUND_SECONDS)
            return len(bench.ledger.seen) - before
    finally:
        await store.close()


def _figures(name: str, counted: tuple[int, int, int]) -> list[report.Figure]:
    parts = (
        ("coming", MOST_COMING, "from the order to an active node"),
        ("idle_hour", MOST_IDLE, "an hour in which nothing happens"),
        ("going", MOST_GOING, "from the request to delete to the confirmed end"),
    )
    return [
        report.Figure(
            name=f"{name}.{part}", value=count, unit="calls", meaning=meaning, at_most=most
        )
        for (part, most, meaning), count in zip(parts, counted, strict=True)
    ]


def main() -> int:
    """Counts and prints."""
    as_json = report.wants_json()
    figures: list[report.Figure] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in sorted(clouds.BENCHES):
            figures += _figures(name, asyncio.run(_life(name, pathlib.Path(folder))))
        fleet = asyncio.run(_fleet(pathlib.Path(folder)))
    figures.append(
        report.Figure(
            name=f"{FLEET_AT}.idle_hour_of_{FLEET}",
            value=fleet,
            unit="calls",
            meaning=f"an hour in which nothing happens to {FLEET} machines",
            at_most=MOST_IDLE,
        )
    )
    report.show("cloud-calls", figures, as_json=as_json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
