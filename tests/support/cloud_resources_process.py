"""An engine that carries operations on volumes to their end, as a process that a test kills.

`python -m tests.support.cloud_resources_process URL FOLDER ADDRESS SECONDS`: connection and order
are made if they are not there; the volume is made, attached to the machine that the test has set
up, detached and deleted. ADDRESS is that of the fake provider, which outlives this process.
`SECONDS` is when this run begins, on a clock of its own, so that leases of the run before have
ended.
"""

import asyncio
import datetime
import os
import pathlib
import sys

from platform_server.cloud import beside, connections, requests, resources
from platform_server.operations import records
from platform_server.sealing import envelope, key_file
from platform_server.store import contract, opening
from provisioning import contract as provider
from runtime_kit import clock as clock_kit
from tests.support import cloud_desk
from tests.support.clouds import bench as bench_kit
from tests.support.clouds import hetzner_bench

MOST_ROUNDS = 120


async def carry_to_the_end(url: str, *, folder: pathlib.Path, address: str, after: int) -> None:
    """Until the volume was made, attached, detached and deleted."""
    store = await opening.open_store(url)
    clock = clock_kit.ManualClock(bench_kit.START + datetime.timedelta(seconds=after))
    desk = cloud_desk.place(
        store, hetzner_bench.HetznerBench(), address=address, keyring=_keyring(folder), clock=clock
    )
    if await desk.find() is None:
        await desk.connecting.save(desk.wish(token=hetzner_bench.TOKEN))
        await store.transact(lambda tx: _machine(tx, ref=(folder / "machine").read_text()))
    for _ in range(MOST_ROUNDS):
        if await _next(desk):
            break
        await desk.carry_on(rounds=1)
    else:
        raise AssertionError("It never came to its end.")
    await store.close()


async def _next(desk: cloud_desk.Desk) -> bool:
    """Asks for the next thing once the last is done; says whether all is."""

    async def work(tx: contract.Tx) -> bool:
        done = await records.list_page(tx, wanted=records.Wanted(), limit=20, before=None)
        if any(one.is_open for one in done):
            return False
        asked = requests.Asked(
            by=cloud_desk.ACTOR, now=desk.clock.now(), environment=cloud_desk.ENVIRONMENT
        )
        if any(one.state != "done" for one in done):
            raise AssertionError([(one.kind, one.state, one.reason) for one in done])
        if not done:
            wish = resources.Wish(
                kind=provider.ChildKind.VOLUME,
                name="data",
                infra="default",
                connection=await connections.get(tx, connection_id="main"),
                region="fsn1",
                size_gigabytes=10,
            )
            await resources.create(tx, wish=wish, asked=asked)
        elif len(done) == 1:
            await resources.attach(tx, resource_id="data", machine_id="web-1", asked=asked)
        elif len(done) == 2:
            await resources.detach(tx, resource_id="data", asked=asked)
        elif len(done) == 3:
            await resources.delete(tx, resource_id="data", asked=asked)
        return len(done) == 4

    return await desk.store.transact(work)


async def _machine(tx: contract.Tx, *, ref: str) -> None:
    found = await connections.get(tx, connection_id="main")
    await tx.execute(
        "INSERT INTO cloud_machines(machine_id, node_id, connection_id, provider, operation_id, "
        "region, size, image, template, provider_ref, ordered_at, ordered_by) VALUES ('m1', "
        "'web-1', ?, 'hetzner', 'op-web-1', 'fsn1', 'cx23', 'debian-12', 't', ?, 0, 'x')",
        found.connection_id,
        ref,
    )


async def volumes_of(store: contract.Store) -> list[beside.Resource]:
    """What stands in the store, gone ones as well."""
    return list(
        await store.read(
            lambda tx: beside.list_page(
                tx, kind=provider.ChildKind.VOLUME, limit=10, with_gone=True
            )
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
            folder=pathlib.Path(os.fspath(sys.argv[2])),
            address=sys.argv[3],
            after=int(sys.argv[4]),
        )
    )
