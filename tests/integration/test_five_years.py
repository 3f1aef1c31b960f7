"""Five years of one Platform and two hundred machines that dial out, in simulated time.

Networks fail for minutes and for two months, machines and the Platform lose power, clocks jump,
trust keys and TLS keys are changed: at the end every node is ready, and none was joined twice. The
seed is fixed; ENLIST_SIMULATION_SEED takes another, or `random`.
"""

import asyncio
import datetime
import os
import pathlib
import random
import shutil
import tempfile
from collections.abc import Iterator

import pytest

from platform_server.trust import port_certificate
from tests.support import faults_of_ours, simulated, virtual_time
from worker_agent.door import platform as platform_door

MACHINES = 200
KEEPERS = 2  # machines that also ask for the trust set daily; the others follow their session
DAY = simulated.DAY
YEAR = 365 * DAY
YEARS = 5
LAST_CALM_SECONDS = 70 * DAY  # nothing new happens; the longest outage under way ends
START = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
SHM = pathlib.Path("/dev/shm")  # noqa: S108 - the disk's own slowness is not what is simulated


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """In memory where the machine has that: hundreds of thousands of files are synced."""
    made = pathlib.Path(tempfile.mkdtemp(dir=SHM)) if os.access(SHM, os.W_OK) else tmp_path
    yield made
    if made is not tmp_path:
        shutil.rmtree(made)


def _seed() -> int:
    given = os.environ.get("ENLIST_SIMULATION_SEED", "2026")
    return random.SystemRandom().randrange(10**9) if given == "random" else int(given)


async def _join_all(world: simulated.World) -> None:
    for number in range(MACHINES):
        machine = world.add(f"node-{number}")
        await machine.join(await world.platform.join_token(machine.node_id))
        machine.start(keeps_trust=number < KEEPERS)
        await virtual_time.passing(60)


def _outage(chance: random.Random) -> float:
    """Seconds; most are short, and one in ten is of weeks."""
    kind = chance.random()
    if kind < 0.6:
        return chance.uniform(30, 4 * 3600)
    return chance.uniform(3600, 3 * DAY) if kind < 0.9 else chance.uniform(7 * DAY, 60 * DAY)


async def _live(machine: simulated.Machine, *, chance: random.Random, keeps_trust: bool) -> None:
    """What one machine goes through, for ever."""
    while True:
        await virtual_time.passing(chance.expovariate(1 / (60 * DAY)))
        kind = chance.random()
        if kind < 0.5:
            await machine.outage(_outage(chance), is_silent=chance.random() < 0.5)
        elif kind < 0.8:
            await machine.stop(is_killed=chance.random() < 0.5)
            await virtual_time.passing(_outage(chance))
            machine.start(keeps_trust=keeps_trust)
        elif kind < 0.95:
            machine.clock.jump(chance.choice((-3600.0, 3600.0)))
        else:
            await machine.change_key()
        machine.note()


async def _govern(world: simulated.World, *, chance: random.Random) -> None:
    """What the Platform goes through, for ever."""
    platform = world.platform
    while True:
        await virtual_time.passing(chance.expovariate(1 / (30 * DAY)))
        kind = chance.random()
        if kind < 0.7:
            away = chance.choice((1.0, 60.0, 3600.0, 6 * 3600.0))
            await world.outage(away, is_killed=chance.random() < 0.5)
        elif kind < 0.85:
            platform.clock.jump(chance.choice((-3600.0, 3600.0)))
        else:
            await platform.rotate_trust_key()


async def _rotate_yearly(world: simulated.World) -> None:
    """Both ports get a new key each year; in the third year at once, without announcing it."""
    for year in range(YEARS):
        await virtual_time.passing(YEAR / 2)
        for port in (port_certificate.ENROLLMENT, port_certificate.GATEWAY):
            await world.platform.rotate_tls_key(port, after_days=0 if year == 2 else 7)
        await virtual_time.passing(YEAR / 2)


async def _away_through_a_rotation(world: simulated.World) -> None:
    """One machine is off for two months in which every key of the Platform changes."""
    machine = world.machines["node-0"]
    await virtual_time.passing(YEAR / 2 - 20 * DAY)
    await machine.outage(60 * DAY, is_silent=True)


async def _five_years(world: simulated.World) -> None:
    await world.platform.open()
    keeping = asyncio.create_task(world.platform.keep())
    await _join_all(world)
    fates = [
        asyncio.create_task(
            _live(
                machine,
                chance=random.Random(f"{world.seed}/fate/{number}"),
                keeps_trust=number < KEEPERS,
            )
        )
        for number, machine in enumerate(world.machines.values())
        if number
    ]
    governing = [
        asyncio.create_task(_govern(world, chance=random.Random(f"{world.seed}/govern"))),
        asyncio.create_task(_rotate_yearly(world)),
        asyncio.create_task(_away_through_a_rotation(world)),
    ]
    lasting = asyncio.create_task(virtual_time.passing(YEARS * YEAR))
    going_on = {lasting, keeping, governing[0], *fates}
    await asyncio.wait(going_on, return_when=asyncio.FIRST_COMPLETED)
    for task in (*fates, *governing):
        task.cancel()
    ended = await asyncio.gather(*fates, *governing, return_exceptions=True)
    assert [one for one in ended if isinstance(one, Exception)] == []
    assert lasting.done()
    await _calm_down(world)
    await virtual_time.passing(LAST_CALM_SECONDS)
    await _judge(world)
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    for machine in world.machines.values():
        await machine.stop(is_killed=False)
    await world.platform.close()


async def _calm_down(world: simulated.World) -> None:
    """Whatever was away comes back."""
    if world.platform.engine is None:
        await world.platform.start()
    for machine in world.machines.values():
        machine.is_cut_off = False
        machine.cut()
        if not machine.is_running:
            machine.start(keeps_trust=False)


async def _judge(world: simulated.World) -> None:
    machines, platform = world.machines.values(), world.platform
    await platform.turn()
    gave_up = {one.node_id: str(one.failures) for one in machines if one.failures}
    assert gave_up == {}
    closed = [one.node_id for one in machines if not one.is_open]
    assert closed == []
    states = {
        row["state"]: row["number"]
        for row in await platform.store.read(
            lambda tx: tx.fetch_all("SELECT state, count(*) AS number FROM nodes GROUP BY state")
        )
    }
    assert states == {"ready": MACHINES}
    joined = "SELECT count(*) AS value FROM action_log WHERE action = ?"
    assert await platform.value(joined, "node.enrolled") == MACHINES
    assert await platform.value(joined, "node.key-changed") == 0
    assert await platform.value("SELECT count(*) AS value FROM identity_conflicts") == 0
    for machine in machines:
        machine.note()
    told = simulated.Told(
        seed=world.seed,
        machines=MACHINES,
        days=world.loop.time() / DAY,
        sessions=await platform.value("SELECT sum(generation) AS value FROM nodes"),
        renewals=sum(len(one.certificates_seen) - 1 for one in machines),
        key_changes=sum(len(one.keys_seen) - 1 for one in machines),
        statements=await platform.value("SELECT max(serial) AS value FROM trust_statements"),
    )
    assert told.renewals > 2 * YEARS * MACHINES  # those seen by chance; six a year happen
    assert told.key_changes > 0
    print(told)  # noqa: T201 - the figures of the run, shown with -s


@pytest.mark.timeout(3000)
def test_after_five_years_every_node_is_ready_and_none_was_joined_twice(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = virtual_time.Loop()
    world = simulated.World(folder=folder, loop=loop, start=START, seed=_seed())
    monkeypatch.setattr(platform_door, "ask", world.ask)
    try:
        with faults_of_ours.none_told():
            loop.run_until_complete(_five_years(world))
    except AssertionError as fault:
        raise AssertionError(f"with the seed {world.seed}: {fault}") from fault
    finally:
        loop.close()
