"""Who may come in by SSH, at every provider: as the order says, or the order is refused."""

import dataclasses
import datetime

import pytest

from provisioning import contract
from tests.support.clouds.bench import START, Bench

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl person"
OPEN_TO_ALL = ("digitalocean", "upcloud", "linode")


async def test_networks_and_an_end_that_would_not_hold_are_refused_before_the_order(
    bench: Bench, driver: contract.Driver
) -> None:
    if bench.provider not in OPEN_TO_ALL:
        pytest.skip(f"{bench.provider} closes port 22, or takes no key")
    ssh = contract.Ssh(
        public_key=KEY,
        sources=("192.0.2.0/28",),
        until=START + datetime.timedelta(hours=2),
    )
    plan = await driver.plan(dataclasses.replace(bench.request(), ssh=ssh))
    (refusal,) = plan.refusals
    assert "--ssh-from" in refusal
    assert "leave them out" in refusal


async def test_a_key_where_port_22_is_open_to_all_is_said_to_be_so(
    bench: Bench, driver: contract.Driver
) -> None:
    if bench.provider not in OPEN_TO_ALL:
        pytest.skip(f"{bench.provider} closes port 22, or takes no key")
    plan = await driver.plan(dataclasses.replace(bench.request(), ssh=contract.Ssh(public_key=KEY)))
    assert plan.refusals == ()
    (warning,) = plan.warnings
    assert "from anywhere" in warning
