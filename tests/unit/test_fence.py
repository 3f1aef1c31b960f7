"""The fence of the unit tests holds, and async tests run."""

import asyncio
import socket
import subprocess
import sys

import pytest


@pytest.fixture
async def awaited() -> str:
    await asyncio.sleep(0)
    return "awaited"


async def test_an_async_test_runs_on_a_loop_with_async_fixtures(awaited: str) -> None:
    assert asyncio.get_running_loop().is_running()
    assert awaited == "awaited"


def test_a_unit_test_cannot_start_a_process() -> None:
    with pytest.raises(RuntimeError, match="starts no process"):
        subprocess.run([sys.executable, "-c", "pass"], check=False)


def test_a_unit_test_cannot_open_a_socket() -> None:
    with pytest.raises(RuntimeError, match="opens no socket"):
        socket.socket(socket.AF_INET)


def test_a_unit_test_has_two_seconds(request: pytest.FixtureRequest) -> None:
    marker = request.node.get_closest_marker("timeout")
    assert marker is not None
    assert marker.args == (2,)
