"""`enlist cloud machines`: ordering, following to the end, looking, ending."""

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import standin, standin_cloud
from tests.support.cli_runs import Enlist
from wire_protocol import problems

CREATE = ("cloud", "machines", "create", "demo", "--provider", "local")
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ9 me@here"


def test_an_order_says_what_it_costs_and_how_to_follow_it(
    enlist: Enlist, platform: standin.StandIn
) -> None:
    done = enlist(*CREATE)
    assert done.code == 0, done.err
    assert done.out.splitlines() == [
        "demo: cx22 in fsn1 at local, 0.0060 EUR/h, about 3.79 EUR a month",
        "Begun. Follow it: enlist operations watch 0000000000000001",
    ]
    assert done.err == "Warning: No default net.\n"
    sent = platform.seen[-1]
    assert (sent.method, sent.path) == ("POST", "/cloud/machines")
    assert sent.body == {"node_id": "demo", "provider": "local", "role": "general"}
    assert "idempotency-key" in sent.headers


def test_an_order_that_is_waited_for_is_told_state_by_state(
    enlist: Enlist, platform: standin.StandIn
) -> None:
    done = enlist(*CREATE, "--wait", "-o", "json")
    assert done.code == 0, done.err
    assert [line for line in done.err.splitlines() if line.startswith("demo: ")][1:] == [
        f"demo: {state}" for state in standin_cloud.CREATE_WAY
    ]
    assert done.json["operation"]["state"] == "active"
    assert done.json["machine"]["phases"][0]["phase"] == "joining"
    assert platform.seen[-1].path == f"/cloud/machines/{'a' * 16}"


ENDS = {
    "it fails for good": ({"state": "failed", "class": "permanent", "reason": "No such size."}, 3),
    "it may work later": ({"state": "failed", "class": "transient", "reason": "Sold out."}, 75),
    "a person must act": ({"state": "failed", "class": "needs-operator", "reason": "Quota."}, 6),
    "it was cancelled": ({"state": "cancelled", "reason": "Cancelled by uid:0."}, 4),
    "nobody knows what became of it": ({"state": "unresolved", "reason": "No answer."}, 6),
}


@pytest.mark.parametrize("case", ENDS.values(), ids=ENDS)
def test_the_exit_code_says_how_an_order_ended(
    case: tuple[dict[str, str], int], enlist: Enlist, platform: standin.StandIn
) -> None:
    update, code = case
    begun = platform.cloud.begin("create-machine", "demo", ())
    changed = {**begun.model_dump(by_alias=True), **update}
    platform.cloud.operations[begun.operation_id] = type(begun).model_validate(changed)
    done = enlist("operations", "watch", begun.operation_id)
    assert done.code == code
    assert update["reason"] in done.err
    if update["state"] == "unresolved":
        assert f"operations resolve {begun.operation_id} adopt|retry|give-up" in done.err


def test_that_an_order_was_cancelled_is_well_where_that_was_asked_for(
    enlist: Enlist, platform: standin.StandIn
) -> None:
    begun = platform.cloud.begin("create-machine", "demo", ("cancelling", "cancelled"))
    done = enlist("operations", "cancel", begun.operation_id, "--wait")
    assert (done.code, done.err) == (0, "demo: cancelling\ndemo: cancelled\n")
    assert enlist("operations", "watch", begun.operation_id).code == 4


def test_what_is_in_the_way_is_told_once_and_shown(
    enlist: Enlist, platform: standin.StandIn
) -> None:
    begun = platform.cloud.begin("delete-machine", "demo", ())
    away = {"waiting": "The provider is away.", "waiting_since": standin_cloud.NOW}
    platform.cloud.becomes = [
        {"state": "deleting", **away},
        {"state": "deleting", **away},
        {"state": "deleted", "waiting": None, "waiting_since": None},
    ]
    done = enlist("operations", "watch", begun.operation_id)
    assert done.code == 0
    line = "demo: deleting, waiting since 2026-01-31 12:00:00: The provider is away."
    assert done.err.splitlines().count(line) == 1
    platform.cloud.machines["demo"] = standin_cloud.machine("demo", state="deleting", **away)
    assert "deleting, waiting" in enlist("cloud", "machines", "list").out
    assert "The provider is away." in enlist("cloud", "machines", "show", "demo").out


def _building(*, is_built: bool) -> Any:
    found = problems.Problem(
        code="cloud-unavailable",
        detail="Nothing to install yet.",
        retry_after=60,
        fields={"building": not is_built},
    )
    return lambda _request: standin.problem(found)


def test_with_wait_an_order_waits_for_what_machines_install(
    enlist: Enlist, platform: standin.StandIn
) -> None:
    platform.faults = [_building(is_built=False), _building(is_built=False)]
    done = enlist(*CREATE, "--wait")
    assert done.code == 0, done.err
    assert (
        done.err.count("Nothing to install yet.\nThe order follows as soon as it is there.\n") == 1
    )
    assert list(platform.cloud.machines) == ["demo"]


def test_without_wait_or_where_nothing_is_built_the_order_is_refused(
    enlist: Enlist, platform: standin.StandIn
) -> None:
    platform.faults = [_building(is_built=False)]
    assert enlist(*CREATE).code == 75
    platform.faults = [_building(is_built=True)]
    assert enlist(*CREATE, "--wait").code == 75
    assert platform.cloud.machines == {}


def test_check_says_the_price_and_orders_nothing(enlist: Enlist, platform: standin.StandIn) -> None:
    done = enlist(*CREATE, "--check", "--wait")
    assert (done.code, done.err) == (0, "")
    assert "order demo: cx22 in fsn1 at hetzner, 0.0060 EUR/h" in done.out
    assert platform.cloud.machines == {}


def test_on_a_terminal_the_price_is_asked_about_and_no_orders_nothing(
    enlist: Enlist, platform: standin.StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("operator_cli.connection.on_terminal", lambda: True)
    refused = enlist(*CREATE, stdin="n\n")
    assert refused.code == 2
    assert "0.0060 EUR/h" in refused.err
    assert "Order it? [y/N]" in refused.err
    assert refused.err.endswith("Nothing was changed.\n")
    assert "Usage" not in refused.err
    assert platform.cloud.machines == {}
    assert enlist(*CREATE, stdin="y\n").code == 0
    assert list(platform.cloud.machines) == ["demo"]
    platform.seen.clear()
    assert enlist(*CREATE, "--yes").code == 0
    assert [seen.query for seen in platform.seen] == [{}]


def test_every_wish_crosses_in_its_field(
    enlist: Enlist, platform: standin.StandIn, tmp_path: Path
) -> None:
    key = tmp_path / "id.pub"
    key.write_text(f"{KEY}\n")
    snippet = tmp_path / "boot.yaml"
    snippet.write_text("#cloud-config\npackages: [jq]\n")
    line = [
        *("cloud", "machines", "create", "web-1", "--provider", "aws", "--connection", "prod"),
        *("--region", "eu-central-1", "--size", "m7i.large", "--untested", "--image", "ami-1"),
        *("--role", "build", "--network", "vpc-1", "--subnet", "subnet-1", "--nested-virt"),
        *("--ssh-key", str(key), "--ssh-from", "192.0.2.0/24", "--ssh-for", "2h"),
        *("--purpose", "a trial", "--disk", "40", "--no-ipv4", "--no-ipv6", "-l", "site=north"),
        *("--first-boot", str(snippet)),
    ]
    assert enlist(*line).code == 0
    assert platform.seen[-1].body == {
        "node_id": "web-1",
        "provider": "aws",
        "connection": "prod",
        "region": "eu-central-1",
        "size": "m7i.large",
        "untested": True,
        "image": "ami-1",
        "role": "build",
        "network": "vpc-1",
        "subnet": "subnet-1",
        "nested_virt": True,
        "disk_gigabytes": 40,
        "public_ipv4": False,
        "public_ipv6": False,
        "labels": {"site": "north"},
        "first_boot": "#cloud-config\npackages: [jq]\n",
        "ssh": {"public_key": KEY, "sources": ["192.0.2.0/24"], "seconds": 7200},
        "purpose": "a trial",
    }


MISTAKES = {
    "a private key": (["--ssh-key", "KEY"], "private key"),
    "a source without a key": (["--ssh-from", "192.0.2.0/24"], "--ssh-key"),
    "a tier and a size": (["--tier", "small", "--size", "cx22"], "not both"),
    "a span that is none": (["--ssh-for", "soon"], "30m"),
    "a provider that is none": (["--provider", "clouds"], "hetzner"),
    "a role that is none": (["--role", "root"], "general"),
}


@pytest.mark.parametrize("case", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_named_before_anything_is_sent(
    case: tuple[list[str], str], enlist: Enlist, platform: standin.StandIn, tmp_path: Path
) -> None:
    words, hint = case
    key = tmp_path / "id"
    key.write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n")
    done = enlist(*CREATE, *(str(key) if word == "KEY" else word for word in words))
    assert (done.code, done.out) == (2, "")
    assert hint in done.err
    assert platform.seen == []


def test_machines_are_listed_with_what_each_costs(
    enlist: Enlist, platform: standin.StandIn
) -> None:
    assert enlist("cloud", "machines", "list").out.startswith("No machines.")
    platform.cloud.machines["web-1"] = standin_cloud.machine("web-1", power="off")
    platform.cloud.machines["old"] = standin_cloud.machine("old", gone_at=standin_cloud.NOW)
    (head, row) = enlist("cloud", "machines", "list").out.splitlines()
    assert head.split()[:3] == ["NODE", "STATE", "POWER"]
    assert "active, still billed" in row
    assert "0.0060 EUR/h" in row
    assert "0.12 EUR" in row
    listed = enlist("cloud", "machines", "list", "--ended", "-o", "json").json["machines"]
    assert [one["node_id"] for one in listed] == ["web-1", "old"]


def test_a_machine_is_shown_and_refreshed(enlist: Enlist, platform: standin.StandIn) -> None:
    platform.cloud.machines["web-1"] = standin_cloud.machine("web-1")
    done = enlist("cloud", "machines", "show", "web-1")
    assert "joining" in done.out
    assert "0.0060 EUR/h, about 3.79 EUR a month" in done.out
    assert platform.seen[-1].method == "GET"
    assert enlist("cloud", "machines", "show", "web-1", "--refresh").code == 0
    assert (platform.seen[-1].method, platform.seen[-1].path) == (
        "POST",
        "/cloud/machines/web-1/refresh",
    )
    assert enlist("cloud", "machines", "show", "web-2").code == 5


def test_a_machine_is_deleted_rebooted_and_forgotten(
    enlist: Enlist, platform: standin.StandIn
) -> None:
    platform.cloud.machines["web-1"] = standin_cloud.machine("web-1")
    done = enlist("cloud", "machines", "reboot", "web-1", "--wait")
    assert done.code == 0, done.err
    done = enlist("cloud", "machines", "delete", "web-1", "--keep-machine", "--wait")
    assert done.code == 0, done.err
    deleted = next(seen for seen in platform.seen if seen.method == "DELETE")
    assert deleted.query == {"keep_machine": ["true"]}
    assert enlist("cloud", "machines", "forget", "web-1").code == 2
    done = enlist("cloud", "machines", "forget", "web-1", "--reason", "closed account")
    assert done.code == 0, done.err
    assert platform.seen[-1].body == {"reason": "closed account"}


def test_costs_are_totals_by_connection_and_by_machine(
    enlist: Enlist, platform: standin.StandIn
) -> None:
    platform.cloud.machines["web-1"] = standin_cloud.machine("web-1")
    lines = enlist("cloud", "costs").out.splitlines()
    assert lines[1].split()[:4] == ["hetzner", "hetzner", "1", "5"]
    assert "0.12 EUR" in lines[-1]


def test_the_catalogue_shows_prices_and_what_cannot_be_had(
    enlist: Enlist, platform: standin.StandIn
) -> None:
    platform.cloud.offered = [
        standin_cloud.offered(),
        standin_cloud.offered(size="cx11", tier=None, available=False, reason="withdrawn"),
    ]
    line = ("cloud", "catalog", "--provider", "hetzner", "--role", "build")
    done = enlist(*line, "--untested", "--nested-virt")
    assert "small  cx22  2" in done.out
    assert "0.0060 EUR/h" in done.out
    assert done.out.rstrip().endswith("withdrawn")
    assert platform.seen[-1].query == {
        "provider": ["hetzner"],
        "role": ["build"],
        "nested_virt": ["true"],
        "untested": ["true"],
    }


class Terminal:
    """What is written to a terminal."""

    def __init__(self) -> None:
        self.text = ""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None: ...


def test_on_a_terminal_a_bar_says_how_far_it_has_come(
    enlist: Enlist, platform: standin.StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = platform.cloud.begin("create-machine", "demo", standin_cloud.CREATE_WAY)
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    assert enlist("operations", "watch", begun.operation_id).code == 0
    drawn = [piece for piece in screen.text.split("\r\x1b[K") if piece.startswith("[")]
    assert [piece.partition("]")[0].count("#") for piece in drawn] == [3, 6, 10, 13, 17, 20]
    assert "demo: creating, 0 s" in drawn[1]
    assert "demo: active\n" in screen.text
    assert not screen.text.endswith("s")
