"""A captured Agent that floods the root helper: the helper goes on, and so does what it began."""

import asyncio
import contextlib
import errno
import json
import os
import pathlib
import resource
import socket
from collections.abc import AsyncIterator, Iterator

import psutil
import pytest

from root_helper import connections, last_order, refusals
from tests.support import root_helpers, tiny_releases, waits
from wire_protocol import helper_protocol as helper

Code = refusals.Code
NEWER = tiny_releases.make("1.2.0")


@pytest.fixture
def machine(tmp_path: pathlib.Path) -> root_helpers.Machine:
    return root_helpers.installed(tmp_path, "1.0.0", "1.1.0")


@contextlib.asynccontextmanager
async def served(machine: root_helpers.Machine) -> AsyncIterator[None]:
    with root_helpers.listening(machine) as listener:
        running = asyncio.create_task(root_helpers.serving(machine).run(listener))
        yield
        async with asyncio.timeout(root_helpers.SECONDS):
            await running


@contextlib.contextmanager
def passing(data: bytes) -> Iterator[int]:
    descriptor = tiny_releases.open_memory(data)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


async def test_a_byte_at_a_time_with_files_beside_each_holds_no_descriptor_open(
    machine: root_helpers.Machine,
) -> None:
    async with served(machine):
        before = psutil.Process().num_fds()
        with passing(b"one") as one, socket.socket(socket.AF_UNIX) as drip:
            drip.settimeout(root_helpers.SECONDS)
            drip.connect(str(machine.socket))
            await asyncio.to_thread(socket.send_fds, drip, [b"x"], [one])
            await asyncio.to_thread(socket.send_fds, drip, [b"x"], [one])
            said = await asyncio.to_thread(drip.recv, 4096)
            assert json.loads(said)["error"] == Code.MALFORMED, "before the line has ended"
        assert psutil.Process().num_fds() <= before + 1


async def test_no_more_files_at_once_are_taken_from_the_kernel_than_there_is_room_for(
    machine: root_helpers.Machine,
) -> None:
    async with served(machine):
        with passing(b"one") as one, socket.socket(socket.AF_UNIX) as flood:
            flood.settimeout(root_helpers.SECONDS)
            flood.connect(str(machine.socket))
            await asyncio.to_thread(socket.send_fds, flood, [b"x"], [one] * 200)
            said = await asyncio.to_thread(flood.recv, 4096)
            assert json.loads(said)["error"] == Code.MALFORMED


async def test_one_account_has_a_few_connections_and_the_next_is_refused_at_once(
    machine: root_helpers.Machine,
) -> None:
    async with served(machine):
        with contextlib.ExitStack() as held:
            for _ in range(connections.MOST_OF_ONE):
                silent = held.enter_context(socket.socket(socket.AF_UNIX))
                await asyncio.to_thread(silent.connect, str(machine.socket))
            late = held.enter_context(socket.socket(socket.AF_UNIX))
            late.settimeout(root_helpers.SECONDS)
            await asyncio.to_thread(late.connect, str(machine.socket))
            said = await asyncio.to_thread(late.recv, 4096)
            assert json.loads(said)["error"] == Code.BUSY
        line = helper.write_question(helper.Verb.STATUS)
        await _served_in_time(machine, line)


async def _served_in_time(machine: root_helpers.Machine, line: bytes) -> None:
    async for _ in waits.looks():
        if await _is_served(machine, line):
            return


async def _is_served(machine: root_helpers.Machine, line: bytes) -> bool:
    try:
        said = await asyncio.to_thread(root_helpers.ask, machine, line)
    except (BrokenPipeError, ConnectionResetError):
        return False
    return b"error" not in said


async def test_a_helper_without_a_free_descriptor_goes_on(
    machine: root_helpers.Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    accept, faults = loop.sock_accept, [errno.EMFILE, errno.ENFILE, errno.ENOMEM]

    async def full(listener: socket.socket) -> object:
        accepted = await accept(listener)
        if faults:
            accepted[0].close()
            raise OSError(faults.pop(), "no room")
        return accepted

    monkeypatch.setattr(loop, "sock_accept", full)
    with root_helpers.listening(machine) as listener:
        limits = root_helpers.limits(close_seconds=0.2, idle_seconds=20.0)
        running = asyncio.create_task(root_helpers.serving(machine, limits_=limits).run(listener))
        line = helper.write_question(helper.Verb.STATUS)
        await _served_in_time(machine, line)
        assert not faults
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


async def test_the_whole_program_ends_well_where_it_never_gets_a_descriptor_again(
    machine: root_helpers.Machine,
) -> None:
    line = helper.write_question(helper.Verb.STATUS)
    process = root_helpers.started(machine)
    try:
        async for _ in waits.looks():
            with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
                await asyncio.to_thread(root_helpers.ask, machine, line)
                break
        _, most = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (3, most))
        with socket.socket(socket.AF_UNIX) as late:
            await asyncio.to_thread(late.connect, str(machine.socket))
            _, said = await asyncio.to_thread(process.communicate, timeout=root_helpers.SECONDS)
    finally:
        process.kill()
        process.wait()
    assert "Too many open files" in said
    assert (process.returncode, "Traceback" in said) == (0, False), said


async def test_a_fault_in_another_request_does_not_leave_a_change_of_release_behind(
    machine: root_helpers.Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    signed = root_helpers.update(NEWER, sequence=1)
    with root_helpers.listening(machine) as listener:
        running = asyncio.create_task(root_helpers.serving(machine).run(listener))
        with passing(NEWER.data) as file:
            await asyncio.to_thread(root_helpers.hand, machine, helper.Verb.UPDATE, signed, file)
        await waits.until(lambda: machine.current == NEWER.release.id)
        monkeypatch.setattr(last_order, "read_outcome", _fault_of_ours)
        with pytest.raises(ConnectionResetError):
            await asyncio.to_thread(
                root_helpers.ask, machine, helper.write_question(helper.Verb.STATUS)
            )
        with pytest.raises(ExceptionGroup, match="unhandled"):
            await running
    assert machine.outcome()["end"] == "changed"


def _fault_of_ours(_places: object) -> None:
    raise ZeroDivisionError("a fault of ours")
