"""Work side by side: the order is kept, and neither a hanging nor a broken one takes others."""

import asyncio

from runtime_kit import side_by_side

Job = side_by_side.Job[str]


async def _run(*jobs: Job) -> list[str]:
    return await side_by_side.run(
        jobs,
        late=lambda job: f"{job.name} is late",
        broken=lambda job, error: f"{job.name} broke: {error}",
    )


async def test_results_come_in_the_order_of_the_jobs() -> None:
    second_done = asyncio.Event()

    async def first() -> str:
        await second_done.wait()
        return "first"

    async def second() -> str:
        second_done.set()
        return "second"

    jobs = [
        Job(name="one", work=first, seconds=1.0),
        Job(name="two", work=second, seconds=1.0),
    ]
    assert await _run(*jobs) == ["first", "second"]


async def test_one_that_hangs_or_breaks_leaves_the_others_alone() -> None:
    async def hang() -> str:
        await asyncio.Event().wait()
        return "never"

    async def fail() -> str:
        raise RuntimeError("bad")

    async def work() -> str:
        return "well"

    async def own_limit() -> str:
        raise TimeoutError("its own")

    jobs = [
        Job(name="hung", work=hang, seconds=0.01),
        Job(name="bad", work=fail, seconds=1.0),
        Job(name="good", work=work, seconds=1.0),
        Job(name="slow", work=own_limit, seconds=1.0),
    ]
    assert await _run(*jobs) == [
        "hung is late",
        "bad broke: bad",
        "well",
        "slow broke: its own",
    ]


async def test_what_blocks_in_a_daemon_thread_gives_its_result_or_its_error() -> None:
    side_by_side.use_daemon_threads()

    def fail() -> str:
        raise ValueError("no")

    assert await asyncio.to_thread(lambda: "yes") == "yes"
    caught = await asyncio.gather(asyncio.to_thread(fail), return_exceptions=True)
    assert isinstance(caught[0], ValueError)
