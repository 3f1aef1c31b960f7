"""The simulated time itself."""

import asyncio
import datetime
import threading
from collections.abc import Iterator

import pytest

from tests.support import virtual_time

START = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)
YEAR = 365 * 86_400.0


@pytest.fixture
def loop() -> Iterator[virtual_time.Loop]:
    made = virtual_time.Loop()
    yield made
    made.close()


def test_a_year_of_waiting_passes_at_once(loop: virtual_time.Loop) -> None:
    clock = virtual_time.VirtualClock(loop, start=START)
    loop.run_until_complete(virtual_time.passing(YEAR))
    assert clock.now() == START + datetime.timedelta(days=365)


def test_waits_end_in_their_order_and_limits_on_waiting_hold(loop: virtual_time.Loop) -> None:
    ended: list[str] = []

    async def wait(name: str, seconds: float) -> None:
        await virtual_time.passing(seconds)
        ended.append(name)

    async def work() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5000):
                await asyncio.gather(wait("late", 3000), wait("early", 1000), wait("never", 9000))

    loop.run_until_complete(work())
    assert ended == ["early", "late"]


def test_time_stands_still_while_a_thread_is_at_work(loop: virtual_time.Loop) -> None:
    done = loop.create_future()
    released = threading.Event()

    def work() -> None:
        released.wait(5)
        loop.call_soon_threadsafe(done.set_result, None)

    async def wait() -> tuple[float, float]:
        thread = threading.Thread(target=work)
        thread.start()
        sleeping = asyncio.create_task(virtual_time.passing(YEAR))
        await virtual_time.passing(0)
        before = loop.time()
        loop.call_soon(released.set)
        with loop.outside():
            await done
        after = loop.time()
        thread.join()
        sleeping.cancel()
        return before, after

    before, after = loop.run_until_complete(wait())
    assert before == after


def test_a_simulation_in_which_nothing_can_happen_says_so(loop: virtual_time.Loop) -> None:
    with pytest.raises(RuntimeError, match="hangs"):
        loop.run_until_complete(loop.create_future())


def test_a_jump_moves_the_wall_time_alone(loop: virtual_time.Loop) -> None:
    clock = virtual_time.VirtualClock(loop, start=START)
    clock.jump(3600)
    assert clock.monotonic() == 0
    assert clock.now() == START + datetime.timedelta(hours=1)
