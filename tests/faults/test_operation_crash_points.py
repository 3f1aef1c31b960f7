"""`kill -9` of an engine at every named point of an operation: another run goes on to the end.

On both stores. Whatever was killed, the node has one order, each step was taken once, and what was
done to the node is undone or done.
"""

import asyncio
import collections
import os
import pathlib
import signal
import sys

import pytest

from platform_server.endpoints import operations as routes
from platform_server.operations import node_release, reconciler, records
from platform_server.store import contract, opening
from runtime_kit import crash_points
from tests.support import operating, real_platform, release_helper

pytestmark = pytest.mark.timeout(180)

WHEN_DONE = (
    *(reconciler.CLAIMED, reconciler.ADVANCED, reconciler.RELEASED, node_release.PREPARED),
    *(node_release.ORDERED, node_release.STAGED, node_release.HEARD, node_release.RESUMED),
)
DONE = ["prepare", "order", "stage", "hear", "succeed"]
FAILED = ["prepare", "order", "fail", "undo"]


def test_the_points_cover_every_step() -> None:
    every = {name for name in crash_points.declared() if name.startswith("operation.")}
    assert every == {*WHEN_DONE, node_release.FAILED, routes.STORED}


@pytest.mark.parametrize("point", WHEN_DONE)
async def test_an_engine_killed_at_the_point_is_followed_to_the_end(
    point: str, store_url: str, tmp_path: pathlib.Path
) -> None:
    assert await _run(store_url, tmp_path, after=0, crash_at=point) == -signal.SIGKILL
    assert await _run(store_url, tmp_path, after=120) == 0
    await _require(store_url, events=DONE, scheduling="active")


async def test_an_engine_killed_before_it_undoes_is_followed_by_one_that_does(
    store_url: str, tmp_path: pathlib.Path
) -> None:
    point = node_release.FAILED
    assert await _run(store_url, tmp_path, "fails", after=0, crash_at=point) == -signal.SIGKILL
    assert await _run(store_url, tmp_path, "fails", after=120) == 0
    await _require(store_url, events=FAILED, scheduling="active")


async def _run(
    url: str, folder: pathlib.Path, *more: str, after: int, crash_at: str | None = None
) -> int:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.support.operations_process"),
        *(url, os.fspath(folder), str(after), *more),
        cwd=release_helper.ROOT,
        stdin=asyncio.subprocess.DEVNULL,
        env=real_platform.clean_environment(
            {"ENLIST_CRASH_AT": crash_at} if crash_at is not None else None
        ),
    )
    async with asyncio.timeout(90):
        return await process.wait()


async def _require(url: str, *, events: list[str], scheduling: str) -> None:
    """The part's steps are these, each once; one order; one line for each action."""
    store = await opening.open_store(url)
    try:
        found = await store.read(_all)
        (part,) = [one for one in found if one.parent_id is not None]
        assert [step.event.value for step in part.steps] == events
        assert not any(one.is_open for one in found)
        actions = collections.Counter(
            action for action, _, operation in await operating.actions_of(store) if operation
        )
        ends = actions.pop("operation.done", 0) + actions.pop("operation.failed", 0)
        assert ends == len(found)
        assert set(actions.values()) == {1}
        row = await store.read(lambda tx: tx.fetch_one("SELECT COUNT(*) AS n FROM orders"))
        assert row is not None
        assert row["n"] == 1
        node = await store.read(lambda tx: tx.fetch_one("SELECT scheduling FROM nodes"))
        assert node is not None
        assert node["scheduling"] == scheduling
    finally:
        await store.close()


async def _all(tx: contract.Tx) -> list[records.Operation]:
    listed = await records.list_page(tx, wanted=records.Wanted(), limit=10, before=None)
    found = [await records.find(tx, operation_id=one.operation_id) for one in listed]
    return [one for one in found if one is not None]
