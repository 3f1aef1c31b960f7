"""Named tasks with one fate."""

import asyncio

import pytest

from runtime_kit import supervise


async def _for_ever() -> None:
    await asyncio.Event().wait()


async def test_runs_until_told_to_stop_and_ends_everybody() -> None:
    ended: list[str] = []

    async def part() -> None:
        try:
            await _for_ever()
        finally:
            ended.append("part")

    stop = asyncio.Event()
    running = asyncio.create_task(supervise.run({"part": part, "other": _for_ever}, stop=stop))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    stop.set()
    await running
    assert ended == ["part"]


async def test_the_end_of_one_ends_the_others_and_is_named() -> None:
    ended: list[str] = []

    async def steady() -> None:
        try:
            await _for_ever()
        finally:
            ended.append("steady")

    async def leaves() -> None:
        await asyncio.sleep(0)

    with pytest.raises(supervise.UnexpectedEnd, match="leaves ended by itself"):
        await supervise.run({"steady": steady, "leaves": leaves}, stop=asyncio.Event())
    assert ended == ["steady"]


async def test_the_death_of_one_is_told_with_its_reason() -> None:
    async def dies() -> None:
        raise RuntimeError("no more")

    with pytest.raises(supervise.UnexpectedEnd, match="dies died: no more") as told:
        await supervise.run({"steady": _for_ever, "dies": dies}, stop=asyncio.Event())
    assert isinstance(told.value.__cause__, RuntimeError)


async def test_a_fault_while_stopping_does_not_hide_the_stop() -> None:
    stop = asyncio.Event()

    async def stumbles() -> None:
        try:
            await _for_ever()
        finally:
            raise RuntimeError("late")

    running = asyncio.create_task(supervise.run({"stumbles": stumbles}, stop=stop))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    stop.set()
    await running


async def test_whoever_cancels_the_whole_gets_a_cancellation() -> None:
    running = asyncio.create_task(supervise.run({"steady": _for_ever}, stop=asyncio.Event()))
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
