"""Every driver on an order without a public IPv4 address: said before anything is bought.

The product's own orders always have one; this holds for whoever builds a request otherwise.
"""

import dataclasses

from provisioning import contract
from tests.support.clouds.bench import Bench, Step


async def test_b86_an_order_without_ipv4_is_warned_of_or_refused_before_anything_is_sent(
    bench: Bench, driver: contract.Driver
) -> None:
    request = dataclasses.replace(bench.request(), public_ipv4=False)
    planned = await driver.plan(request)
    said = " ".join((*planned.warnings, *planned.refusals))
    own = "addresses of this host" if bench.provider.startswith("local") else "IPv4"
    assert own in said, said
    assert bench.ledger.count(bench.steps[Step.CREATE]) == 0
