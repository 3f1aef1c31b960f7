"""`kill -9` of an engine at every named point of an order, a delete, a cancel and a reboot.

On both stores, up to five restarts each. Whatever was killed, the provider has one machine or none
of what was ordered, no child is left unowned, every token is spent, ended or bound, and the create
call was made once for each attempt.
"""

import asyncio
import os
import pathlib
import signal
import sys

import pytest

from platform_server.cloud import (
    coming_up,
    delete,
    doubting,
    giving_up,
    ordering,
    parting,
    reboot,
    removal,
)
from platform_server.operations import reconciler
from runtime_kit import crash_points
from tests.support import (
    machine_orders,
    machine_orders_process,
    real_platform,
    release_helper,
)
from tests.support.clouds import pocket

pytestmark = pytest.mark.timeout(240)
RESTARTS = 5

CREATED = (ordering.WRITTEN, ordering.SENT, pocket.MADE, ordering.ANSWERED, ordering.PRESENT)
REACHED_BY = {
    **dict.fromkeys((*CREATED, coming_up.ADMITTED, coming_up.ACTIVE), "create"),
    **dict.fromkeys(
        (
            delete.DELETING,
            removal.REVOKED,
            removal.DELETE_SENT,
            removal.DELETE_ANSWERED,
            removal.SETTLED,
            parting.CHILD_ANSWERED,
            delete.GONE,
        ),
        "delete",
    ),
    giving_up.CANCELLING: "cancel",
    giving_up.FAILED: "fails",
    doubting.LOST: "lost",
    reboot.REBOOTING: "reboot",
}
BETWEEN = (reconciler.CLAIMED, reconciler.ADVANCED, reconciler.RELEASED)
MACHINES_LEFT = {"create": 1, "delete": 0, "cancel": 0, "fails": 1, "lost": 0, "reboot": 1}


def test_the_points_cover_every_step() -> None:
    every = {name for name in crash_points.declared() if name.startswith("cloud.")}
    of_machines = {
        name for name in every if not name.startswith(("cloud.resource", "cloud.orphan"))
    }
    assert of_machines == set(REACHED_BY) - {pocket.MADE}


@pytest.mark.parametrize("point", sorted(REACHED_BY))
async def test_an_engine_killed_at_the_point_leaves_one_machine_or_none(
    point: str, store_url: str, tmp_path: pathlib.Path
) -> None:
    await _walk(store_url, tmp_path, point=point, story=REACHED_BY[point])


@pytest.mark.parametrize("point", BETWEEN)
async def test_an_engine_killed_between_steps_is_followed_to_the_end(
    point: str, store_url: str, tmp_path: pathlib.Path
) -> None:
    await _walk(store_url, tmp_path, point=point, story="delete")  # its order comes first


@pytest.mark.parametrize("point", [ordering.SENT, ordering.PRESENT])
async def test_an_engine_killed_around_a_lost_answer_adopts_what_was_made(
    point: str, store_url: str, tmp_path: pathlib.Path
) -> None:
    await _run(store_url, tmp_path, story="cut", crash_at=point)
    assert await _run(store_url, tmp_path, story="cut") == 0
    await _require(store_url, tmp_path, machines=1)


async def _walk(url: str, folder: pathlib.Path, *, point: str, story: str) -> None:
    assert await _run(url, folder, story=story, crash_at=point) == -signal.SIGKILL
    for _ in range(RESTARTS - 1):
        if await _run(url, folder, story=story, crash_at=point) == 0:
            break
    else:
        assert await _run(url, folder, story=story) == 0
    # killed before each call of both attempts there is none; in doubt it costs until a person says
    await _require(
        url,
        folder,
        machines=MACHINES_LEFT[story],
        or_none=point == ordering.SENT,
        unseen_seconds=3600.0 if story == "lost" else RESTARTS * 60.0,
    )


async def _run(url: str, folder: pathlib.Path, *, story: str, crash_at: str | None = None) -> int:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.support.machine_orders_process"),
        *(url, os.fspath(folder), story),
        cwd=release_helper.ROOT,
        stdin=asyncio.subprocess.DEVNULL,
        env=real_platform.clean_environment(
            {"ENLIST_CRASH_AT": crash_at} if crash_at is not None else None
        ),
    )
    async with asyncio.timeout(120):
        return await process.wait()


async def _require(
    url: str,
    folder: pathlib.Path,
    *,
    machines: int,
    or_none: bool = False,
    unseen_seconds: float = RESTARTS * 60.0,
) -> None:
    engine = await machine_orders_process.open_engine(url, folder=folder, later=0.0)
    try:
        left = len(engine.cloud.standing())
        assert left == machines or (or_none and not left)
        tried = await engine.store.read(
            lambda tx: tx.fetch_one("SELECT COUNT(*) AS n FROM cloud_attempts")
        )
        assert tried is not None
        assert len(engine.cloud.ever()) <= int(tried["n"])
        assert len(engine.cloud.calls(pocket.CREATE)) <= int(tried["n"])
        await machine_orders.require_standard(
            engine, mutating=4 * RESTARTS, unseen_seconds=unseen_seconds
        )
    finally:
        await engine.store.close()
