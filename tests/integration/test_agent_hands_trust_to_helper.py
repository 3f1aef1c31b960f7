"""A running Agent hands each newer trust set to the root helper, which judges it by itself."""

import asyncio
import pathlib

from root_helper import trusted
from tests.support import imaginary_platform, joining, machine, root_helpers, waits, worker_command
from wire_protocol import ids
from worker_agent.door import root_helper
from worker_agent.settings import trust_file


async def test_a_rotation_reaches_the_helper_also_over_two_sets(tmp_path: pathlib.Path) -> None:
    here = root_helpers.installed(tmp_path / "machine", "1.0.0", seeded=False)
    async with imaginary_platform.running(tmp_path / "platform") as platform:
        node = joining.Joining(folder=tmp_path / "worker")
        await node.join(platform.issue("web-1"), port=machine.free_port())
        held = trust_file.read(node.where.trust)
        assert held is not None
        known = trusted.Known(node_id=ids.parse_node_id("web-1"), held=held)
        trusted.write(here.places, known)
        platform.publish(platform.keys[0], platform.new_key())
        platform.publish(platform.new_key())
        with root_helpers.listening(here) as listener:
            limits = root_helpers.limits(idle_seconds=3.0)
            running = asyncio.create_task(root_helpers.serving(here, limits_=limits).run(listener))
            async with worker_command.started(
                "agent",
                *("--data-dir", str(node.folder)),
                environment={root_helper.VARIABLE: str(here.socket)},
            ):
                await waits.until(lambda: number(here) > held.statement.number)
            async with asyncio.timeout(root_helpers.SECONDS):
                await running
    latest = trusted.find(here.places)
    assert latest is not None
    assert [key.key_id for key in latest.held.statement.trust_keys] == [
        platform.keys[-1].public.key_id
    ]


def number(here: root_helpers.Machine) -> tuple[int, int]:
    known = trusted.find(here.places)
    assert known is not None
    return known.held.statement.number
