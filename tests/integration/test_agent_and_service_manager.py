"""What the Agent tells the service manager: that it serves, also where the Platform is away."""

import asyncio
import pathlib
import socket

import pytest

from tests.support import (
    imaginary_gateway,
    imaginary_platform,
    joining,
    machine,
    service_managers,
    worker_command,
)


async def test_a_listening_agent_is_ready_once_it_holds_its_port_and_tells_that_it_stops(
    tmp_path: pathlib.Path,
) -> None:
    port = machine.free_port()
    async with imaginary_platform.running(tmp_path / "platform") as platform:
        node = joining.Joining(folder=tmp_path / "worker")
        await node.join(platform.issue("web-1"), port=port)
    with service_managers.hearing(tmp_path) as manager:
        async with worker_command.started(
            "agent", "--data-dir", str(node.folder), environment=manager.environment
        ) as process:
            assert await manager.next() == [
                "READY=1",
                f"STATUS=Listens on port {port} as node web-1",
            ]
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            process.terminate()
            assert await manager.next() == ["STOPPING=1"]
            assert (await worker_command.finish(process)).code == 0


async def test_a_port_of_another_program_is_no_ready_agent_and_a_temporary_fault(
    tmp_path: pathlib.Path,
) -> None:
    port = machine.free_port()
    async with imaginary_platform.running(tmp_path / "platform") as platform:
        node = joining.Joining(folder=tmp_path / "worker")
        await node.join(platform.issue("web-1"), port=port)
    with service_managers.hearing(tmp_path) as manager, socket.socket() as other:
        other.bind(("0.0.0.0", port))
        other.listen()
        ended = await worker_command.enlist(
            "agent", "--data-dir", str(node.folder), environment=manager.environment
        )
        assert ended.code == 75
        assert str(port) in ended.err
        with pytest.raises(BlockingIOError):
            manager.said_now()


async def test_a_dialling_agent_is_ready_though_its_platform_is_away(
    tmp_path: pathlib.Path,
) -> None:
    async with imaginary_gateway.running(tmp_path / "platform") as gateway:
        node = joining.Joining(folder=tmp_path / "worker")
        await node.join(gateway.platform.issue("web-1"))
    with service_managers.hearing(tmp_path) as manager:
        async with worker_command.started(
            "agent", "--data-dir", str(node.folder), environment=manager.environment
        ) as process:
            assert await manager.next() == [
                "READY=1",
                "STATUS=Dials out to the Platform as node web-1",
            ]
            process.terminate()
            assert await manager.next() == ["STOPPING=1"]


async def test_a_manager_that_does_not_hear_changes_nothing_but_the_log(
    tmp_path: pathlib.Path,
) -> None:
    async with imaginary_gateway.running(tmp_path / "platform") as gateway:
        node = joining.Joining(folder=tmp_path / "worker")
        await node.join(gateway.platform.issue("web-1"))
        async with worker_command.started(
            "agent",
            "--data-dir",
            str(node.folder),
            environment={"NOTIFY_SOCKET": str(tmp_path / "gone")},
        ) as process:
            await worker_command.said(process, "The service manager was not told")
            assert (await gateway.ask_health("web-1")).node_id == "web-1"
