"""Looking: providers, one volume, machines by state, a console, an operation by its node's name."""

from typing import Any

import pytest

from operator_cli import following, moments
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
        labels={"tier": "web"},
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


def test_who_stops_waiting_is_told_that_the_operation_goes_on_and_how_to_follow_it(
    enlist: Enlist, platform: standin.StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(moments, "pause", stop)
    begun = platform.cloud.begin("create-machine", "demo", ("creating", "active"))
    done = enlist("operations", "watch", begun.operation_id)
    assert done.code == 130
    assert f"goes on. Follow it again: enlist operations watch {begun.operation_id}" in done.err


def test_an_operation_is_followed_by_the_name_of_its_node(
    enlist: Enlist, platform: standin.StandIn
) -> None:
    former = platform.cloud.begin("create-machine", "demo", ())
    platform.cloud.operations[former.operation_id] = former.model_copy(update={"state": "failed"})
    open_one = platform.cloud.begin("delete-machine", "demo", ("deleting", "deleted"))
    reboot = standin_cloud.operation("f" * 16, kind="reboot-machine", node_id="demo")
    platform.cloud.operations[reboot.operation_id] = reboot.model_copy(update={"state": "done"})
    done = enlist("operations", "watch", "Demo.", "-o", "json")
    assert done.code == 0, done.err
    assert done.json["operation_id"] == open_one.operation_id
    assert done.err.splitlines() == ["demo: deleting", "demo: deleted"]
    ended = enlist("operations", "show", "demo", "-o", "json")
    assert ended.json["operation_id"] == reboot.operation_id  # none is open: the newest of all


def test_a_node_may_be_called_as_operations_are(enlist: Enlist, platform: standin.StandIn) -> None:
    begun = platform.cloud.begin("create-machine", "0123456789abcdef", ("active",))
    done = enlist("operations", "watch", "0123456789abcdef", "-o", "json")
    assert (done.code, done.json["operation_id"]) == (0, begun.operation_id)


@pytest.mark.parametrize("name", ["nobody", "0123456789abcdef", "no_name"])
def test_what_is_neither_operation_nor_node_is_not_found(
    enlist: Enlist, platform: standin.StandIn, name: str
) -> None:
    platform.cloud.begin("create-machine", "demo", ())
    for command in ("watch", "show"):
        assert enlist("operations", command, name).code == 5


def test_a_console_is_shown_as_plain_lines(enlist: Enlist, platform: standin.StandIn) -> None:
    platform.cloud.console = "first\n\n\tthird \x1b[2J\n"
    done = enlist("cloud", "machines", "console", "demo")
    assert done.code == 0, done.err
    assert done.out.splitlines() == ["first", "", "        third ?[2J"]
    assert platform.seen[-1].path == "/cloud/machines/demo/console"


def test_a_console_may_be_empty_as_yet_or_not_to_be_had(
    enlist: Enlist, platform: standin.StandIn
) -> None:
    platform.cloud.console = ""
    assert "nothing of its console yet" in enlist("cloud", "machines", "console", "demo").out
    platform.cloud.console = None
    done = enlist("cloud", "machines", "console", "demo")
    assert done.code == 4
    assert "no console" in done.err


@pytest.mark.parametrize("noun", ["machines", "volumes", "snapshots", "addresses"])
def test_a_list_is_narrowed_to_labels(enlist: Enlist, platform: standin.StandIn, noun: str) -> None:
    assert enlist("cloud", noun, "list", "-l", "tier=web", "--label", "team").code == 0
    assert platform.seen[-1].path == f"/cloud/{noun}"
    assert platform.seen[-1].query["label"] == ["tier=web", "team"]


@pytest.mark.parametrize(
    "command",
    [
        (
            "volumes",
            "create",
            "data",
            "--connection",
            "c",
            "--region",
            "r",
            "--size-gigabytes",
            "1",
        ),
        ("snapshots", "create", "data", "web-1"),
        ("addresses", "create", "data", "--connection", "c", "--region", "r"),
    ],
)
def test_what_is_kept_beside_machines_takes_labels(
    enlist: Enlist, platform: standin.StandIn, command: tuple[str, ...]
) -> None:
    enlist("cloud", *command, "-l", "tier=web", "--yes")
    assert platform.seen[-1].path == f"/cloud/{command[0]}"
    assert platform.seen[-1].body["labels"] == {"tier": "web"}
    assert enlist("cloud", *command, "-l", "no label").code == 2


def test_orphans_are_narrowed_to_a_connection_and_a_kind_is_one_of_those_there_are(
    enlist: Enlist, platform: standin.StandIn
) -> None:
    platform.cloud.orphans = [standin_cloud.orphan("hetzner"), standin_cloud.orphan("ocean")]
    done = enlist("cloud", "orphans", "list", "--connection", "ocean", "-o", "json")
    assert [one["connection"] for one in done.json["orphans"]] == ["ocean"]
    asked = len(platform.seen)
    wrong = enlist("cloud", "orphans", "delete", "hetzner", "servers", "4711", "--yes")
    assert (wrong.code, len(platform.seen)) == (2, asked)
    assert "'security-group'" in wrong.err
