"""An engine that carries an operation to its end, as a process that a test kills at a named point.

`python -m tests.support.operations_process URL FOLDER SECONDS [fails]`: node and operation are made
if they are not there, and the node does what it is ordered. `SECONDS` is when this run begins, on a
clock of its own, so that leases of the run before have ended.
"""

import asyncio
import datetime
import pathlib
import sys

from platform_server.dispatch import states as order_states
from platform_server.operations import records
from platform_server.sealing import envelope, key_file
from platform_server.store import opening
from runtime_kit import clock as clock_kit
from tests.support import domain, operating

MOST_ROUNDS = 60


async def carry_to_the_end(url: str, *, folder: pathlib.Path, after: int, fails: bool) -> None:
    """Until nothing is open."""
    store = await opening.open_store(url)
    start = domain.START + datetime.timedelta(seconds=after)
    platform = await domain.build(
        store, folder=folder, keyring=_keyring(folder), clock=clock_kit.ManualClock(start)
    )
    engine = operating.Engine(platform)
    web = await operating.find_node(platform, "web-1") or await operating.node(platform, "web-1")
    if not await _listed(engine):
        await engine.update("web-1")
    for _ in range(MOST_ROUNDS):
        await engine.carry_on(rounds=1)
        found = await _listed(engine)
        if not any(one.is_open for one in found):
            break
        await _act(web, fails=fails)
    else:
        raise AssertionError(found)
    await store.close()


async def _act(web: operating.Node, *, fails: bool) -> None:
    """The machine does what it was ordered, once, and goes on telling what it runs."""
    order = await web.order()
    if order is None:
        await web.beats()
    elif order.state is order_states.State.QUEUED and fails:
        await web.answers(order_states.Event.FAIL, "It cannot.")
    elif order.state is order_states.State.QUEUED:
        await web.takes_and_stages()
        await web.restarts(operating.RELEASE)
    else:
        await web.beats()


async def _listed(engine: operating.Engine) -> list[records.Operation]:
    return list(
        await engine.platform.store.read(
            lambda tx: records.list_page(tx, wanted=records.Wanted(), limit=10, before=None)
        )
    )


def _keyring(folder: pathlib.Path) -> envelope.Keyring:
    path = folder / key_file.NAME
    key_file.create(path, envelope.new_key())
    (key,) = key_file.read(path)
    return envelope.Keyring([key], current=key.kek_id)


if __name__ == "__main__":
    asyncio.run(
        carry_to_the_end(
            sys.argv[1],
            folder=pathlib.Path(sys.argv[2]),
            after=int(sys.argv[3]),
            fails=sys.argv[4:] == ["fails"],
        )
    )
