"""The engine at Azure and Google where they are peculiar: parts left over, late refusals."""

import pathlib
from collections.abc import Iterator

import pytest

from platform_server.store import contract
from provisioning import contract as provider
from provisioning.azure import calls as azure_calls
from provisioning.gcp import calls as gcp_calls
from tests.support import machine_lives, machine_orders
from tests.support.clouds import azure_bench, gcp_bench
from tests.support.clouds.script import Armed, Verb

MOST_CHANGES = 60  # two attempts, each of seven parts, whose deletes are asked for until heard
ENDS = ("failed", "unresolved", "active", "cancelled")


@pytest.fixture
def azure() -> Iterator[azure_bench.AzureBench]:
    with azure_bench.AzureBench() as opened:
        yield opened


@pytest.fixture
def gcp() -> Iterator[gcp_bench.GcpBench]:
    with gcp_bench.GcpBench() as opened:
        yield opened


async def test_b52_failed_allocations_leave_nothing_at_azure_whatever_it_forgets(
    store: contract.Store, tmp_path: pathlib.Path, azure: azure_bench.AzureBench
) -> None:
    azure.cloud.cascades = False
    azure.cloud.nic_reserved = 180
    armed = Armed(verb=Verb.ASYNC_FAIL, code="AllocationFailed", message="no room")
    azure.script.arm_always(armed, on=azure_calls.PUT_VM.name)
    life = await machine_lives.build(store, folder=tmp_path, bench=azure)
    life.is_settling = True
    made = await life.ordered()
    assert await life.until(made, *ENDS, rounds=200) == "failed"
    assert "AllocationFailed: no room" in (await life.stands(made)).steps[-1].detail
    first, second = azure.ledger.machines.values()
    assert first.died is not None
    assert first.died <= second.born  # gone before the next was asked for
    left = [one for one in azure.ledger.living_things() if one.tags == first.tags]
    assert left == []
    assert await life.end(made) == "deleted"  # a failed one is kept until somebody says so
    assert (azure.ledger.living(), azure.ledger.living_things()) == ([], [])
    await machine_orders.require_standard(life, mutating=MOST_CHANGES, unseen_seconds=300.0)


async def test_a_machine_refused_after_its_parts_were_made_leaves_no_part_at_azure(
    store: contract.Store, tmp_path: pathlib.Path, azure: azure_bench.AzureBench
) -> None:
    azure.script.list_lag = 36_000
    armed = Armed(verb=Verb.FAIL_CODE, code="QuotaExceeded", status=409, message="no cores")
    azure.script.arm_always(armed, on=azure_calls.PUT_VM.name)
    life = await machine_lives.build(store, folder=tmp_path, bench=azure)
    made = await life.ordered()
    assert await life.until(made, *ENDS, rounds=200) == "failed"
    assert "QuotaExceeded: no cores" in (await life.stands(made)).steps[-1].detail
    assert azure.ledger.count(azure_calls.PUT_VM.name) == 1
    assert (azure.ledger.living(), azure.ledger.living_things()) == ([], [])
    await machine_orders.require_standard(life, mutating=MOST_CHANGES, unseen_seconds=300.0)


@pytest.mark.parametrize(
    "part",
    [azure_calls.PUT_GROUP, azure_calls.PUT_ADDRESS, azure_calls.PUT_NIC],
    ids=lambda call: call.name.rpartition("/")[2],
)
async def test_an_answer_lost_at_a_part_is_no_second_part_at_azure(
    store: contract.Store,
    tmp_path: pathlib.Path,
    azure: azure_bench.AzureBench,
    part: provider.ApiCall,
) -> None:
    azure.script.arm(Armed(verb=Verb.COMMIT_THEN_DROP), on=part.name)
    life = await machine_lives.build(store, folder=tmp_path, bench=azure)
    made = await life.ordered()
    await life.until(made, "booting", "bootstrapping")
    assert len(azure.ledger.living()) == 1
    kinds = sorted(one.kind for one in azure.ledger.living_things())
    assert kinds == ["address", "disk", "interface", "security-group"]
    await life.end(made)
    assert (azure.ledger.living(), azure.ledger.living_things()) == ([], [])
    await machine_orders.require_standard(life, mutating=MOST_CHANGES, unseen_seconds=300.0)


async def test_b12_polls_that_are_answered_with_503_buy_no_second_machine_at_google(
    store: contract.Store, tmp_path: pathlib.Path, gcp: gcp_bench.GcpBench
) -> None:
    armed = Armed(verb=Verb.FAIL_CODE, code="backendError")
    gcp.script.arm(armed, on=gcp_calls.OPERATION.name, times=3)
    life = await machine_lives.build(store, folder=tmp_path, bench=gcp)
    made = await life.ordered()
    await life.until(made, "booting", "bootstrapping")
    await life.carry_on(rounds=6)
    assert len(gcp.ledger.machines) == 1
    assert gcp.ledger.count(gcp_calls.INSERT.name) == 1
    await machine_orders.require_standard(life, mutating=MOST_CHANGES, unseen_seconds=300.0)


async def test_b50_a_zone_sold_out_late_is_a_failure_with_the_zones_that_have_room(
    store: contract.Store, tmp_path: pathlib.Path, gcp: gcp_bench.GcpBench
) -> None:
    gcp.cloud.full["us-central1-a"] = ("us-central1-b", "us-central1-f")
    life = await machine_lives.build(store, folder=tmp_path, bench=gcp)
    life.is_settling = True
    made = await life.ordered()
    assert await life.until(made, *ENDS, rounds=400) == "failed"
    said = str(await life.stands(made))
    assert "ZONE_RESOURCE_POOL_EXHAUSTED" in said
    assert "us-central1-f" in said
    assert (gcp.ledger.living(), gcp.ledger.living_things()) == ([], [])
    await machine_orders.require_standard(life, mutating=MOST_CHANGES, unseen_seconds=300.0)
