"""Who may come in by SSH, at every provider: as the order says, or the order is refused."""

import dataclasses
import datetime

import pytest

from provisioning import contract, nobody
from tests.support.clouds.asking import ordered
from tests.support.clouds.bench import ANY_PORT, START, Bench

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl person"
OPEN_TO_ALL = ("digitalocean", "upcloud", "linode")
WITHOUT_FIREWALL = ("upcloud", "linode", "vultr", "openstack", "local-nspawn", "local-qemu")
ALWAYS_A_PASSWORD = ("vultr", "openstack")


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


async def test_who_may_come_in_is_obeyed_or_refused_before_the_order(
    bench: Bench, driver: contract.Driver
) -> None:
    """With networks and an end port 22 alone is open; or the plan says that it cannot be."""
    ssh = contract.Ssh(
        public_key=KEY, sources=("192.0.2.0/28",), until=START + datetime.timedelta(hours=2)
    )
    request = dataclasses.replace(bench.request(), ssh=ssh)
    plan = await driver.plan(request)
    if bench.provider in {"aws", "azure", "gcp", "hetzner"}:
        assert plan.refusals == ()
        created = await driver.create(plan.settled or request)
        bench.settle()
        assert bench.ports_open(created.ref) == ["22"]
    else:
        assert any("--ssh-from" in one or "SSH" in one for one in plan.refusals)
        assert bench.ledger.machines == {}


async def test_nobody_can_log_in_without_a_key_of_the_operator(
    bench: Bench, driver: contract.Driver
) -> None:
    """No password was told or mailed, the key that is there is nobody's, and no port is open.

    Where a provider always makes up a password it is kept nowhere; where none here makes a
    firewall, there is neither key nor password that opens anything.
    """
    held = []
    for number in (1, 2):
        request, created = await ordered(
            bench, driver, operation=f"op-{number}", node=f"node-{number}"
        )
        machine = bench.ledger.machines[created.ref]
        if bench.provider in ALWAYS_A_PASSWORD:
            (password,) = machine.passwords
            assert password not in repr(created)  # and first boot lets none open the machine
        else:
            assert machine.passwords == []
        assert machine.user_data == request.first_boot.encode()  # nor one of ours
        if bench.provider in WITHOUT_FIREWALL:
            assert bench.ports_open(created.ref) == [ANY_PORT]
        else:
            assert bench.ports_open(created.ref) == []
        held.append(machine.keys)
    if bench.provider != "hetzner":  # one serves all there, since their number is limited
        assert not set(held[0]) & set(held[1])
    for keys in held:
        assert all(_is_of_nobody(one, bench=bench) for one in keys)


def _is_of_nobody(key: str, *, bench: Bench) -> bool:
    """A fresh key, of which no private half was ever sent there."""
    assert bench.provider not in ("hetzner", "digitalocean") or key.endswith(nobody.COMMENT)
    return key.startswith("ssh-") and not any(
        b"PRIVATE KEY" in one.body for one in bench.ledger.seen
    )
