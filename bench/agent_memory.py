"""Resident memory of an idle Agent: a minute after its start, and after 1,000 health questions.

The questions come over new mutual-TLS connections, as a Platform asks one that listens; one that
dials out has them over its session.
"""

import asyncio
import pathlib
import tempfile

import psutil

from bench import report
from tests.support import imaginary_gateway, imaginary_platform, joining, machine

IDLE_SECONDS = 60
QUESTIONS = 1000
START_SECONDS = 20.0


def main() -> None:
    """Runs the bench and prints its figures."""
    as_json = report.wants_json()
    with tempfile.TemporaryDirectory(prefix="enlist-bench-") as name:
        figures = asyncio.run(measure(pathlib.Path(name)))
    report.show("agent-memory", figures, as_json=as_json)


async def measure(folder: pathlib.Path) -> list[report.Figure]:
    """Both figures of one Agent."""
    async with imaginary_platform.running(folder / "platform") as platform:
        worker = machine.in_folder(folder)
        await asyncio.to_thread(worker.join, platform.issue("bench-1"))
        client = platform.client_certificate()
        agent = worker.start_agent()
        try:
            async with asyncio.timeout(START_SECONDS):
                while not await _answers(platform, worker.port, client):  # noqa: ASYNC110 - a process of its own tells no event
                    await asyncio.sleep(0.1)
            await asyncio.sleep(IDLE_SECONDS)
            idle = _megabytes(agent.process.pid)
            for _ in range(QUESTIONS):
                status, _ = await platform.ask_agent(worker.port, client=client)
                assert status == 200
            asked = _megabytes(agent.process.pid)
        finally:
            await asyncio.to_thread(agent.stop)
    dialled = await _dial_out(folder)
    return [
        report.Figure(
            name="rss_dial_out", value=dialled, unit="MB", at_most=45,
            meaning=f"dialling out, after {QUESTIONS:,} health questions over its session",
        ),
        report.Figure(
            name="rss_idle", value=idle, unit="MB", at_most=45,
            meaning=f"{IDLE_SECONDS} s after its start",
        ),
        report.Figure(
            name="rss_asked", value=asked, unit="MB", at_most=45,
            meaning=f"after {QUESTIONS:,} health questions over new connections",
        ),
        report.Figure(
            name="growth_ratio", value=asked / idle, unit="x",
            meaning="1 means that answering leaves nothing behind",
        ),
    ]  # fmt: skip


async def _dial_out(folder: pathlib.Path) -> float:
    async with imaginary_gateway.running(folder / "with-gateway") as gateway:
        node = joining.Joining(folder=folder / "dials-out")
        await node.join(gateway.platform.issue("bench-2"))
        agent = machine.Machine(data_dir=node.folder, port=0).start_agent()
        try:
            await gateway.session_of("bench-2")
            for _ in range(QUESTIONS):
                await gateway.ask_health("bench-2")
            return _megabytes(agent.process.pid)
        finally:
            await asyncio.to_thread(agent.stop)


async def _answers(
    platform: imaginary_platform.ImaginaryPlatform, port: int, client: pathlib.Path
) -> bool:
    try:
        status, _ = await platform.ask_agent(port, client=client)
    except OSError:
        return False
    return status == 200


def _megabytes(pid: int) -> float:
    return float(psutil.Process(pid).memory_info().rss) / 1_000_000


if __name__ == "__main__":
    main()
