"""What a faked provider sells is a real machine that boots the user data which it was given.

From the order to a ready node and back to nothing, as each provider's encoding came over the wire:
Hetzner and, in the long tier, the providers of tests/support/faked_clouds (EC2 is moto's). The
Platform serves on this host, machines stand on a bridge beside it and know themselves by the
provider's id. Not for: the metadata services, in whose place cloud-init reads a seed.
"""

import json
import pathlib
from collections.abc import Iterator

import pytest

from provisioning.local import host, images
from tests.support import faked_clouds, faked_hetzner, operators
from tests.support.clouds import ledger
from tests.support.machines import local

BOOT_SECONDS = 150


@pytest.fixture(scope="module")
def vms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[host.Places]:
    """Where the providers' machines stand."""
    reason = local.why_not()
    if reason is not None:
        pytest.skip(reason)
    try:
        local.ensure_image()
    except images.BuildFailed as failure:
        pytest.skip(f"no image can be built: {failure}")
    with local.alone(), local.bridged(tmp_path_factory.mktemp("vms")) as places:
        yield places


@pytest.fixture(scope="module")
def market(
    vms: host.Places, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[faked_clouds.Market]:
    del vms  # the bridge stands
    folder = tmp_path_factory.mktemp("market")
    with faked_clouds.running(
        folder, addresses=(local.ADDRESS,), offer=local.offer_worker
    ) as running:
        yield running


def lives(
    place: faked_hetzner.Place, order: tuple[str, ...], *, of: ledger.Ledger, vms: host.Places
) -> None:
    """Orders, boots what was sold, waits for the command, deletes."""
    node = order[3]
    with place.started(*order) as ordering:
        operators.wait_until(lambda: bool(of.living()), what="a machine is bought")
        (bought,) = of.living()
        known_as = bought.instance_id
        with local.booted(vms, user_data=bought.user_data, instance_id=known_as) as guest:
            _, err = ordering.communicate(timeout=BOOT_SECONDS)
            assert ordering.returncode == 0, (err, guest.console())
            shown = json.loads(place.run("cloud", "machines", "show", node, "-o", "json").stdout)
            assert (shown["provider_ref"], shown["state"]) == (bought.ref, "active")
            phases = [one["phase"] for one in shown["phases"]]
            assert sorted(set(phases)) == ["fetching", "installing", "joining", "starting"]
            assert guest.run("cloud-init", "query", "instance_id").strip() == known_as
            place.run("cloud", "machines", "delete", node, "--wait")
    assert of.living() == []


def test_a_machine_sold_by_hetzner_boots_into_a_ready_node(
    vms: host.Places, tmp_path: pathlib.Path
) -> None:
    with (
        faked_hetzner.faking() as faked,
        faked_hetzner.serving(
            tmp_path, faked=faked, addresses=(local.ADDRESS,), offer=local.offer_worker
        ) as place,
    ):
        place.connect()
        order = ("cloud", "machines", "create", "at-hetzner", "--provider", "hetzner", "--wait")
        lives(place, order, of=faked.fake.ledger, vms=vms)


@pytest.mark.long
@pytest.mark.parametrize("provider", sorted(faked_clouds.SHOPS))
def test_a_machine_sold_elsewhere_boots_into_a_ready_node(
    market: faked_clouds.Market, vms: host.Places, provider: str
) -> None:
    stall = market.stalls[provider]
    market.connect(provider)
    order = (
        *("cloud", "machines", "create", f"at-{provider}", "--provider", provider),
        *("--region", stall.shop.region, "--tier", "starter", "--wait"),
    )
    lives(market.place, order, of=stall.ledger, vms=vms)
