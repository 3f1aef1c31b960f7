"""An engine that carries an order of a machine to its end, as a process that a test kills.

`python -m tests.support.machine_orders_process URL FOLDER STORY`. The order is made if it is not
there, provider and clock live in files of FOLDER, so the next run goes on where the one before was
killed, a little later, when its leases have ended. Stories: `create`, `delete` (after create),
`cancel` (while it boots), `fails` (it never enrolls, twice), `lost` (the answer is cut and the
provider is away), `reboot` (after create), `cut` (the answer is cut, the machine is there).
"""

import asyncio
import datetime
import pathlib
import sys
from collections.abc import Sequence
from typing import Final

from platform_server.cloud import requests
from platform_server.nodes import records as node_records
from platform_server.operations import records, states
from platform_server.sealing import envelope, key_file
from platform_server.store import opening
from runtime_kit import clock as clock_kit
from tests.support import domain, machine_orders
from tests.support.clouds import pocket
from wire_protocol import ids

MOST_ROUNDS: Final = 400
STEP_SECONDS: Final = 11.0
AFTER_A_KILL: Final = 20.0  # longer than a lease
STORIES: Final = ("create", "delete", "cancel", "fails", "lost", "reboot", "cut")


class Story:
    """What a run does, from wherever the one before was killed."""

    def __init__(self, engine: machine_orders.Engine, *, folder: pathlib.Path, story: str) -> None:
        self.engine = engine
        self.story = story
        self._clock_file = folder / "clock"

    async def tell(self) -> None:
        """Until the story's end."""
        if self.story == "lost":
            self.engine.cloud.arm(pocket.CREATE, pocket.lost())
            self.engine.cloud.rules.clean_answers = 10_000
        if self.story == "cut":
            self.engine.cloud.arm(pocket.CREATE, pocket.lost(), done=True)
        for _ in range(MOST_ROUNDS):
            if await self._step():
                return
            await self.engine.carry_on(rounds=1, seconds=STEP_SECONDS)
            self._clock_file.write_text(self.engine.platform.clock.now().isoformat())
        raise AssertionError(await self._operations())

    async def _step(self) -> bool:
        """What the person and the machine do next; says whether the end is reached."""
        found = await self._operations()
        if not found:
            await self.engine.order()
            return False
        first = next(one for one in found if one.kind == requests.CREATE)
        if self.story != "fails":
            await self._guest(first)
        if self.story == "cancel" and first.state is states.State.BOOTING:
            await self.engine.delete()
        if first.is_open:
            return self.story == "lost" and first.state is states.State.UNRESOLVED
        later = [one for one in found if one is not first]
        if self.story in ("delete", "reboot") and not later:
            if self.story == "delete":
                await self.engine.delete()
            else:
                await self.engine.store.transact(
                    lambda tx: requests.reboot_machine(
                        tx, machine_id="web-1", asked=self.engine.asked()
                    )
                )
            return False
        return not any(one.is_open for one in later)

    async def _guest(self, operation: records.Operation) -> None:
        """The machine does its part once it runs: it enrolls, and is heard."""
        running = [
            one
            for one in self.engine.cloud.standing()
            if self.engine.cloud.shown(one).power.value == "running"
        ]
        if not running or not operation.is_open:
            return
        guest = machine_orders.Guest(self.engine, ref=running[-1]["ref"])
        node = await self.engine.store.read(
            lambda tx: node_records.find(tx, node_id=ids.NodeId("web-1"))
        )
        if node is None:
            await guest.joins()
        else:
            await guest.answers()

    async def _operations(self) -> Sequence[records.Operation]:
        return await self.engine.store.read(
            lambda tx: records.list_page(tx, wanted=records.Wanted(), limit=10, before=None)
        )


async def open_engine(
    url: str, *, folder: pathlib.Path, later: float = AFTER_A_KILL
) -> machine_orders.Engine:
    """The engine and its provider as the last run left them."""
    clock_file = folder / "clock"
    start = domain.START
    if clock_file.exists():
        start = datetime.datetime.fromisoformat(clock_file.read_text())
    clock = clock_kit.ManualClock(start + datetime.timedelta(seconds=later))
    store = await opening.open_store(url)
    platform = await domain.build(store, folder=folder, keyring=_keyring(folder), clock=clock)
    cloud = pocket.Pocket(
        clock=clock, path=folder / "pocket.json", rules=pocket.Rules(children_stay=True)
    )
    engine = machine_orders.Engine(platform, cloud=cloud)
    await engine.connection()
    return engine


async def _main(url: str, folder: pathlib.Path, story: str) -> None:
    engine = await open_engine(url, folder=folder)
    await Story(engine, folder=folder, story=story).tell()
    await engine.store.close()


def _keyring(folder: pathlib.Path) -> envelope.Keyring:
    path = folder / key_file.NAME
    key_file.create(path, envelope.new_key())
    (key,) = key_file.read(path)
    return envelope.Keyring([key], current=key.kek_id)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]))
