"""Looking: which providers can be used, one volume, machines by state, a Platform that is away."""

from typing import Any

import pytest

from operator_cli import following
from tests.support import standin, standin_cloud
from tests.support.cli_runs import Enlist
from wire_protocol import cloud_machines, problems


def test_the_providers_are_shown_with_what_is_missing(
    enlist: Enlist, platform: standin.StandIn
) -> None:
    done = enlist("cloud", "providers")
    assert done.code == 0, done.err
    told = platform.seen[-1]
    assert (told.method, told.path) == ("GET", "/cloud")
    for one in standin_cloud.facts().providers:
        assert one.provider in done.out
        for sentence in one.missing:
            assert f"{one.provider}: {sentence}" in done.out


def test_machines_are_narrowed_to_a_state(enlist: Enlist, platform: standin.StandIn) -> None:
    platform.cloud.machines["good"] = standin_cloud.machine("good", state="active")
    platform.cloud.machines["bad"] = standin_cloud.machine("bad", state="failed")
    done = enlist("cloud", "machines", "list", "--state", "failed", "-o", "json")
    assert [one["node_id"] for one in done.json["machines"]] == ["bad"]


@pytest.mark.parametrize("noun", ["volumes", "snapshots", "addresses"])
def test_one_is_shown_by_its_name_and_another_is_not_found(
    enlist: Enlist, platform: standin.StandIn, noun: str
) -> None:
    kept = cloud_machines.Child(
        child_id="a1b2c3d4e5f60718",
        kind="volume",
        name="data",
        connection="hetzner",
        provider="hetzner",
        region="fsn1",
        provider_ref="4711",
        node_id="web-1",
        keep=True,
        address=None,
        size_gigabytes=50,
        price=None,
        present_at=standin_cloud.NOW,
        delete_asked_at=None,
        gone_at=None,
    )
    platform.cloud.children = [kept]
    assert enlist("cloud", noun, "show", "data", "-o", "json").json["provider_ref"] == "4711"
    assert "web-1" in enlist("cloud", noun, "show", "data").out
    done = enlist("cloud", noun, "show", "nothing")
    assert done.code == 5
    assert f"enlist cloud {noun} list" in done.err


def _away(_request: Any) -> Any:
    return standin.problem(
        problems.Problem(code="cloud-unavailable", detail="It restarts.", retry_after=60)
    )


def test_following_outlives_a_platform_that_is_away_and_says_so_once(
    enlist: Enlist, platform: standin.StandIn
) -> None:
    begun = platform.cloud.begin("create-machine", "demo", ("creating", "active"))
    platform.faults = [_away, _away, _away]
    done = enlist("operations", "watch", begun.operation_id)
    assert done.code == 0, done.err
    assert done.err.count("The operation goes on; asking again.") == 1


def test_following_ends_where_a_platform_stays_away(
    enlist: Enlist, platform: standin.StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "_AWAY_SECONDS", 0.0)
    begun = platform.cloud.begin("create-machine", "demo", ("active",))
    platform.faults = [_away]
    assert enlist("operations", "watch", begun.operation_id).code == 75
