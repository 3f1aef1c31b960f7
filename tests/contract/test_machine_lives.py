"""The engine at every provider: one machine from its order to its end, and what is left of it.

What the engine does in general is shown with a provider of a test's own (test_machine_orders.py and
its trials); here it meets each real driver, over its fake.
"""

import pathlib

import pytest

from platform_server.store import contract
from tests.support import machine_lives, machine_orders
from tests.support.clouds.bench import Bench, Step
from tests.support.clouds.script import Armed, Verb

MOST_CALLS = 60
"""For one machine from order to confirmed end, the polls of a boot of a minute included."""


MOST_CHANGES = 14
"""Azure makes and deletes a machine in seven parts; nobody needs more."""
UNSEEN = 300.0
"""Seconds between a fake's end of a machine and the look that confirms it, as it settles."""


@pytest.fixture
def store_kind() -> str:
    """One store: that the engine is the same on both is shown with a provider of a test's own."""
    return "sqlite"


async def test_a_machine_is_ordered_enrolls_and_is_deleted_and_leaves_nothing(
    store: contract.Store, tmp_path: pathlib.Path, bench: Bench
) -> None:
    life = await machine_lives.build(store, folder=tmp_path, bench=bench)
    made = await life.ordered()
    await life.until(made, "booting")
    guest = await life.guest(made)
    assert await guest.joins() == 201
    assert await life.until(made, "active") == "active"
    assert await life.end(made) == "deleted"
    assert bench.ledger.living() == []
    assert bench.ledger.living_things() == []
    assert bench.ledger.count(bench.steps[Step.CREATE]) == 1
    assert len(bench.ledger.seen) <= MOST_CALLS, bench.ledger.names()
    await machine_orders.require_standard(life, mutating=MOST_CHANGES, unseen_seconds=UNSEEN)


async def test_an_answer_that_was_lost_is_adopted_and_never_asked_for_again(
    store: contract.Store, tmp_path: pathlib.Path, bench: Bench
) -> None:
    if Verb.COMMIT_THEN_DROP not in bench.verbs:
        pytest.skip(f"{bench.provider} has no answer to lose")
    life = await machine_lives.build(store, folder=tmp_path, bench=bench)
    bench.script.arm(Armed(verb=Verb.COMMIT_THEN_DROP), on=bench.steps[Step.CREATE])
    made = await life.ordered()
    await life.until(made, "booting", "bootstrapping")
    living = bench.ledger.living()
    assert [one.ref for one in living] == [(await life.machine(made)).provider_ref]
    await life.carry_on(rounds=4)  # what hangs on it is told by the next look
    await machine_orders.require_standard(life, mutating=MOST_CHANGES, unseen_seconds=UNSEEN)
    await life.end(made)
    assert bench.ledger.living() == []
    assert bench.ledger.living_things() == []
    await machine_orders.require_standard(life, mutating=MOST_CHANGES, unseen_seconds=UNSEEN)
