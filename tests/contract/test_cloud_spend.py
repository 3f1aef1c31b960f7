"""What the Platform says was spent, against what a provider's own book says: machines, volumes.

The standard assertion of every trial: spend shown = the sum of lifetimes times price. What differs
is the time between a machine's end and its confirmation, which is told in full.
"""

import pathlib

import pytest

from platform_server.cloud import consent, costs, requests, reserve
from platform_server.store import contract
from provisioning import contract as provider
from tests.support import machine_lives
from tests.support.clouds import hetzner_bench
from tests.support.clouds import script as script_kit
from wire_protocol import ids

HOUR = 3600
CONFIRMING_SECONDS = 180
"""By how much at most an end is later here than there, for one machine."""


@pytest.fixture
def store_kind() -> str:
    """One store: sums on both are shown in test_cloud_costs."""
    return "sqlite"


async def _order(life: machine_lives.Life, node_id: str, *, price: provider.Price) -> requests.Made:
    order = requests.Order(
        node_id=ids.parse_node_id(node_id),
        infra="default",
        connection=await life.connection(),
        region=life.bench.region,
        size=life.bench.size,
        image=life.bench.image,
        price=price,
    )
    return await life.store.transact(
        lambda tx: requests.create_machine(
            tx, order=order, operators=life.platform.operators, asked=life.asked()
        )
    )


async def _price(life: machine_lives.Life) -> provider.Price:
    """Machine and address, as the provider tells it."""
    async with life.clouds.driver("c-1", purpose="price", actor="local:0", changes=False) as driver:
        plan = await driver.plan(life.bench.request())
    assert plan.price is not None
    return plan.price


async def _spent(life: machine_lives.Life) -> tuple[int, int]:
    """In all, and by the hour now."""
    found = await life.store.read(
        lambda tx: costs.total_by_connection(tx, now=life.bench.clock.now())
    )
    (total,) = found["c-1"]
    assert total.currency == "EUR"
    return total.spent_micros, total.hourly_micros


def _booked(life: machine_lives.Life) -> int:
    return life.bench.ledger.cost_micros(life.bench.clock.now())


async def test_spend_shown_is_the_sum_of_lifetimes_times_price_while_they_live_and_after(
    store: contract.Store, tmp_path: pathlib.Path, hetzner: hetzner_bench.HetznerBench
) -> None:
    life = await machine_lives.build(store, folder=tmp_path, bench=hetzner)
    price = await _price(life)
    made = []
    for number in range(3):
        made.append(await _order(life, f"web-{number}", price=price))
        await life.until(made[-1], "booting")
        assert await (await life.guest(made[-1])).joins() == 201
        assert await life.until(made[-1], "active") == "active"
        hetzner.clock.advance(HOUR)
    spent, hourly = await _spent(life)
    assert hourly == 3 * price.hourly_micros
    assert abs(spent - _booked(life)) <= 3  # a millionth a machine, by rounding
    for one in made:
        assert await life.end(one) == "deleted"
        hetzner.clock.advance(5 * HOUR)
    spent, hourly = await _spent(life)
    booked = _booked(life)
    assert hourly == 0
    most = 3 * CONFIRMING_SECONDS * price.hourly_micros // HOUR
    assert booked <= spent + 3
    assert spent - booked <= most


async def test_a_machine_that_is_in_doubt_costs_from_the_order_on_and_nothing_if_it_never_was(
    store: contract.Store, tmp_path: pathlib.Path, hetzner: hetzner_bench.HetznerBench
) -> None:
    life = await machine_lives.build(store, folder=tmp_path, bench=hetzner)
    price = await _price(life)
    hetzner.script.arm(
        script_kit.Armed(verb=script_kit.Verb.COMMIT_THEN_DROP), on="POST /v1/servers"
    )
    made = await _order(life, "web-1", price=price)
    await life.until(made, "booting", "bootstrapping")
    spent, _ = await _spent(life)
    assert abs(spent - _booked(life)) <= 1
    await life.end(made)
    before, _ = await _spent(life)
    hetzner.script.arm_always(
        script_kit.Armed(verb=script_kit.Verb.FAIL_CODE, code="resource_limit_exceeded"),
        on="POST /v1/servers",
    )
    refused = await _order(life, "web-2", price=price)
    await life.until(refused, "failed")
    assert await _spent(life) == (before, 0)


async def test_what_is_spent_by_the_hour_is_what_the_cap_is_judged_by(
    store: contract.Store, tmp_path: pathlib.Path, hetzner: hetzner_bench.HetznerBench
) -> None:
    life = await machine_lives.build(store, folder=tmp_path, bench=hetzner)
    price = await _price(life)
    made = await _order(life, "web-1", price=price)
    await life.until(made, "booting")
    _, hourly = await _spent(life)
    assert hourly == price.hourly_micros
    cap = consent.Caps(
        most_machines=5, most_hourly_micros=2 * hourly - 1, currency="EUR", named="policy"
    )
    with pytest.raises(reserve.CapReached):
        await store.transact(
            lambda tx: reserve.reserve(
                tx, provider_name="hetzner", connection_id="c-1", price=price, caps=[cap]
            )
        )
