"""Fixtures of the suite that every provider's driver passes: a fake, and a driver on it.

The rows are `tests.support.clouds.bench.BENCHES`; what only one provider has is tested beside its
driver. What the Platform does with any provider is tested on the fake Hetzner Cloud.
"""

from collections.abc import AsyncIterator, Iterator

import pytest

from platform_server.store import contract as store_contract
from provisioning import contract
from tests.support import cloud_desk, standard_asserts
from tests.support.clouds import bench as bench_kit
from tests.support.clouds import hetzner_bench


@pytest.fixture(autouse=True)
def _heard() -> Iterator[None]:
    """What the product logs is kept for the standard asserts."""
    with standard_asserts.listening():
        yield


@pytest.fixture(autouse=True)
def _one_or_none(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each trial at a provider's fake, what that holds of ours is judged."""
    used = request.getfixturevalue("bench") if "bench" in request.fixturenames else None
    yield
    if isinstance(used, bench_kit.Bench):
        standard_asserts.require_ledger(used.ledger, installation=bench_kit.INSTALLATION)


@pytest.fixture(params=sorted(bench_kit.BENCHES))
def bench(request: pytest.FixtureRequest) -> Iterator[bench_kit.Bench]:
    with bench_kit.open_bench(request.param) as opened:
        yield opened


@pytest.fixture
async def driver(bench: bench_kit.Bench) -> AsyncIterator[contract.Driver]:
    opened = bench.driver()
    try:
        yield opened
    finally:
        await opened.close()


@pytest.fixture
async def hasty(bench: bench_kit.Bench) -> AsyncIterator[contract.Driver]:
    """A driver that waits for answers no longer than a second."""
    opened = bench.driver(limits=bench_kit.SHORT)
    try:
        yield opened
    finally:
        bench.script.release()
        await opened.close()


@pytest.fixture
def hetzner() -> Iterator[hetzner_bench.HetznerBench]:
    """A fake Hetzner Cloud that is running."""
    with hetzner_bench.HetznerBench() as bench:
        yield bench


@pytest.fixture
async def desk(store: store_contract.Store, hetzner: hetzner_bench.HetznerBench) -> cloud_desk.Desk:
    """A Platform that is connected to it."""
    made = cloud_desk.place(store, hetzner, address=hetzner.address)
    await made.connecting.save(made.wish(token=hetzner_bench.TOKEN))
    return made
