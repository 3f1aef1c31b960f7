"""`kill -9` of an engine at every named point of an operation on a volume, on both stores.

The provider is a process of its own here (the test's), so what the killed engine had done there
stays done. At the end the volume was bought once, and nothing of it is left, there or in the bill.
"""

import asyncio
import os
import pathlib
import signal
import sys

import pytest

from platform_server.cloud import costs, resource_create, resource_kinds
from platform_server.store import opening
from provisioning import contract as provider
from provisioning import naming
from runtime_kit import crash_points
from tests.support import cloud_resources_process, real_platform, release_helper
from tests.support.clouds import bench as bench_kit
from tests.support.clouds import hetzner_bench

pytestmark = pytest.mark.timeout(240)

POINTS = (
    *(resource_create.SENT, resource_create.ANSWERED, resource_create.KEPT),
    resource_kinds.CHANGED,
)


def test_the_points_cover_every_step() -> None:
    every = {name for name in crash_points.declared() if name.startswith("resource.")}
    assert every == set(POINTS)


async def _run(
    url: str, folder: pathlib.Path, address: str, *, after: int, crash_at: str | None = None
) -> int:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.support.cloud_resources_process"),
        *(url, os.fspath(folder), address, str(after)),
        cwd=release_helper.ROOT,
        stdin=asyncio.subprocess.DEVNULL,
        env=real_platform.clean_environment(
            {"ENLIST_CRASH_AT": crash_at} if crash_at is not None else None
        ),
    )
    async with asyncio.timeout(100):
        return await process.wait()


@pytest.mark.parametrize("point", POINTS)
async def test_an_engine_killed_at_the_point_five_times_buys_one_volume_and_leaves_none(
    point: str, store_url: str, tmp_path: pathlib.Path
) -> None:
    with hetzner_bench.HetznerBench() as hetzner:
        owner = provider.Owner(
            installation=bench_kit.INSTALLATION,
            infra="default",
            operation="op-web-1",
            node="web-1",
            attempt=1,
        )
        ref = hetzner.plant(name=naming.name_of(owner), tags=naming.tags_of(owner))
        hetzner.settle()
        (tmp_path / "machine").write_text(ref)
        ends = []
        for number in range(5):
            after = number * 600
            ends.append(
                await _run(store_url, tmp_path, hetzner.address, after=after, crash_at=point)
            )
            hetzner.clock.advance(600)
            hetzner.settle()
            if ends[-1] == 0:
                break
        assert -signal.SIGKILL in ends
        assert await _run(store_url, tmp_path, hetzner.address, after=6000) == 0
        volumes = [one for one in hetzner.ledger.things.values() if one.kind == "volume"]
        assert len(volumes) == 1
        assert hetzner.ledger.count("POST /v1/volumes") == 1 or point == resource_create.SENT
        assert volumes[0].died is not None
        assert [one.ref for one in hetzner.ledger.living()] == [ref]
    store = await opening.open_store(store_url)
    try:
        (volume,) = await cloud_resources_process.volumes_of(store)
        assert volume.gone_at is not None
        totals = await store.read(
            lambda tx: costs.total_of(
                tx, subject_ids=[volume.child_id], now=volume.gone_at or volume.written_at
            )
        )
        assert [total.hourly_micros for total in totals[volume.child_id]] == [0]
    finally:
        await store.close()
