"""What every test of the suite of providers does: order, wait for an end, take a fault."""

from collections.abc import Awaitable

import pytest

from provisioning import contract, outcomes
from tests.support.clouds.bench import Bench, Step
from tests.support.clouds.script import Armed


async def settled(driver: contract.Driver, request: contract.Request) -> contract.Request:
    """The request as it is sent: what it left open made exact."""
    plan = await driver.plan(request)
    assert plan.refusals == ()
    return plan.settled or request


async def ordered(
    bench: Bench, driver: contract.Driver, *, operation: str = "op-1", node: str = "demo"
) -> tuple[contract.Request, contract.Created]:
    """One machine, ordered and come to its end."""
    request = await settled(driver, bench.request(operation=operation, node=node))
    created = await driver.create(request)
    bench.settle()
    return request, created


async def failing(doing: Awaitable[object]) -> outcomes.Fault:
    """The fault that this call raises."""
    with pytest.raises(outcomes.Fault) as caught:
        await doing
    return caught.value


async def refused(bench: Bench, driver: contract.Driver, armed: Armed) -> outcomes.Fault:
    """How an order fails that is answered like this."""
    if armed.verb not in bench.verbs:
        pytest.skip(f"{bench.provider} answers no codes")
    request = await settled(driver, bench.request())
    bench.script.arm_always(armed, on=bench.steps[Step.CREATE])
    return await failing(driver.create(request))


async def is_clean(asking: Awaitable[contract.Sightings | contract.Inventory]) -> bool:
    """Whether this was a clean answer; any fault but an unknown outcome is the test's own."""
    try:
        return (await asking).is_complete
    except outcomes.Fault as fault:
        if fault.outcome is not outcomes.Outcome.UNKNOWN:
            raise
        return False


async def until_gone(bench: Bench, driver: contract.Driver, ref: str, region: str) -> None:
    """Asks until the provider says that it is gone."""
    for _ in range(20):
        bench.settle()
        if await driver.describe(ref, region=region) is None:
            return
    raise AssertionError("The provider never says that it is gone.")


async def until_child_gone(bench: Bench, driver: contract.Driver, child: contract.Child) -> None:
    """Has it deleted, again and again while it is in use, until the provider says it is gone."""
    for _ in range(20):
        try:
            await driver.delete_child(child)
        except outcomes.Fault as fault:
            if (fault.outcome, fault.topic) != (
                outcomes.Outcome.NOT_DONE_RETRYABLE,
                outcomes.Topic.STATE,
            ):
                raise
        bench.settle()
        if await driver.describe_child(child) is None:
            return
    raise AssertionError("The provider never says that it is gone.")
