"""From an order whose answer is lost to a ready node and back to nothing, at each faked provider.

The Platform, its commands, the join and the Agent are the product's own; see
tests/support/faked_clouds.py.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import faked_clouds, faked_hetzner, operators
from tests.support.clouds import script

pytestmark = [pytest.mark.timeout(240), pytest.mark.xdist_group("cloud-providers")]


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory) -> Iterator[faked_clouds.Market]:
    with faked_clouds.running(tmp_path_factory.mktemp("market")) as running:
        yield running


# Half a minute each, most of it looking an order up; one contract suite holds all of them.
@pytest.mark.parametrize(
    "provider",
    [
        pytest.param(name, marks=[] if name in {"digitalocean", "upcloud"} else [pytest.mark.long])
        for name in sorted(faked_clouds.SHOPS)
    ],
)
def test_an_order_whose_answer_is_lost_becomes_one_ready_node_and_ends_in_nothing(
    market: faked_clouds.Market, provider: str
) -> None:
    stall, place = market.stalls[provider], market.place
    market.connect(provider)
    stall.script.arm(script.Armed(verb=script.Verb.COMMIT_THEN_DROP), on=stall.shop.create)
    node = f"at-{provider}"
    order = (
        *("cloud", "machines", "create", node, "--provider", provider),
        *("--region", stall.shop.region, "--tier", "starter", "--wait"),
    )
    with place.started(*order) as ordering:
        operators.wait_until(lambda: bool(stall.ledger.living()), what="a machine is bought")
        (bought,) = stall.ledger.living()
        operators.wait_until(
            lambda: _shown(market, node)["provider_ref"] == bought.ref,
            what="it is found",
            seconds=60,
        )
        with faked_hetzner.booted(place.folder, bought=bought):
            _, err = ordering.communicate(timeout=150)
            assert ordering.returncode == 0, err
            shown = _shown(market, node)
            assert (shown["provider_ref"], shown["state"]) == (bought.ref, "active")
            place.run("cloud", "machines", "delete", node, "--wait")
    assert stall.ledger.living() == []
    assert stall.ledger.living_things() == []
    assert stall.ledger.count(stall.shop.create) == 1
    log = place.platform.log.read_text()
    assert (stall.shop.telling or stall.shop.secret) not in log


def _shown(market: faked_clouds.Market, node: str) -> dict[str, Any]:
    told = market.place.run("cloud", "machines", "show", node, "-o", "json").stdout
    shown: dict[str, Any] = json.loads(told)
    return shown
