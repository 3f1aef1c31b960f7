"""`enlist cloud connections`: secrets from files and prompts, never from argv without a warning."""

import json
from pathlib import Path

import pytest

from tests.support import standin, standin_cloud
from tests.support.cli_runs import Enlist

SAVE = ("cloud", "connections", "save", "hetzner", "--provider", "hetzner")


def test_a_secret_is_read_from_a_file_and_shown_nowhere(
    enlist: Enlist, platform: standin.StandIn, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text("hunter2\n")
    done = enlist(*SAVE, "--secret-file", str(file), "--setting", "region=fsn1")
    assert done.code == 0, done.err
    sent = platform.seen[-1]
    assert (sent.method, sent.path) == ("PUT", "/cloud/connections/hetzner")
    assert sent.body == {
        "provider": "hetzner",
        "credential": {"kind": "token", "fields": {"token": "hunter2"}},
        "settings": {"region": "fsn1"},
    }
    assert "hunter2" not in done.out + done.err
    assert "Saved hetzner (hetzner)." in done.out
    assert "Allow this." in done.out


def test_a_secret_comes_over_stdin(enlist: Enlist, platform: standin.StandIn) -> None:
    assert enlist(*SAVE, "--secret-file", "-", stdin="hunter2\n").code == 0
    assert platform.seen[-1].body["credential"]["fields"] == {"token": "hunter2"}


def test_without_a_file_a_terminal_is_asked_without_echo(
    enlist: Enlist, platform: standin.StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert enlist(*SAVE).code == 2
    assert all(seen.method == "GET" for seen in platform.seen)
    asked: list[dict[str, object]] = []

    def prompt(text: str, **more: object) -> str:
        asked.append({"text": text, **more})
        return "hunter2"

    monkeypatch.setattr("operator_cli.connection.on_terminal", lambda: True)
    monkeypatch.setattr("click.prompt", prompt)
    assert enlist(*SAVE).code == 0
    assert asked == [{"text": "The token (not shown)", "hide_input": True, "err": True}]


def test_a_secret_as_an_argument_works_and_warns(enlist: Enlist, platform: standin.StandIn) -> None:
    done = enlist(*SAVE, "--field", "token=hunter2")
    assert done.code == 0
    assert "can be read by others" in done.err
    assert "hunter2" not in done.err
    assert platform.seen[-1].body["credential"]["fields"] == {"token": "hunter2"}


def test_a_document_of_the_providers_own_tool_crosses_whole(
    enlist: Enlist, platform: standin.StandIn, tmp_path: Path
) -> None:
    file = tmp_path / "key.json"
    file.write_text(json.dumps({"type": "service_account", "private_key": "hunter2"}))
    line = ("cloud", "connections", "save", "g", "--provider", "gcp", "--credential", "gcp-key")
    assert enlist(*line, "--secret-file", str(file)).code == 0
    assert json.loads(platform.seen[-1].body["credential"]["fields"]["document"])["private_key"]


def test_a_kind_without_a_secret_asks_for_none(enlist: Enlist, platform: standin.StandIn) -> None:
    line = ("cloud", "connections", "save", "g", "--provider", "gcp")
    assert enlist(*line, "--field", "pool-id=enlist").code == 0
    assert platform.seen[-1].body["credential"] == {
        "kind": "gcp-federated",
        "fields": {"pool_id": "enlist"},
    }
    done = enlist(*line, "--secret-file", "-", stdin="x")
    assert done.code == 2
    assert "needs no secret" in done.err


def test_local_is_advised_by_its_full_name(enlist: Enlist, platform: standin.StandIn) -> None:
    assert enlist("cloud", "connections", "save", "here", "--provider", "local").code == 0
    assert platform.seen[-1].body["credential"] == {"kind": "none"}


def test_a_check_names_what_is_missing_and_ends_with_six(
    enlist: Enlist, platform: standin.StandIn
) -> None:
    platform.cloud.connections["aws"] = standin_cloud.connection("aws", provider="aws")
    assert enlist("cloud", "connections", "check", "aws").code == 0
    platform.cloud.check = standin_cloud.checked(ok=False, missing=["ec2:RunInstances"], room=4)
    done = enlist("cloud", "connections", "check", "aws")
    assert done.code == 6
    assert "ec2:RunInstances" in done.out
    assert "4" in done.out
    assert enlist("cloud", "connections", "check", "gcp").code == 5


def test_a_check_says_how_many_of_the_wanted_fit(enlist: Enlist, platform: standin.StandIn) -> None:
    platform.cloud.connections["do"] = standin_cloud.connection("do", provider="digitalocean")
    platform.cloud.fits = 4
    done = enlist("cloud", "connections", "check", "do", "--wanted", "5")
    assert platform.seen[-1].query == {"wanted": ["5"]}
    assert "4 of 5 machines fit." in done.out
    platform.cloud.fits = None
    done = enlist("cloud", "connections", "check", "do", "--wanted", "5")
    assert "The provider does not say how many of 5 machines fit." in done.out
    assert " fit" not in enlist("cloud", "connections", "check", "do").out
    assert enlist("cloud", "connections", "check", "do", "--wanted", "0").code == 2


def test_connections_are_listed_shown_and_forgotten(
    enlist: Enlist, platform: standin.StandIn
) -> None:
    assert enlist("cloud", "connections", "list").out.startswith("No connections.")
    platform.cloud.connections["hetzner"] = standin_cloud.connection("hetzner")
    (_, row) = enlist("cloud", "connections", "list").out.splitlines()
    assert row.split()[:3] == ["hetzner", "hetzner", "ready"]
    shown = enlist("cloud", "connections", "show", "hetzner").out
    assert "nothing is spent without a person" in shown
    assert "12.34 EUR" in shown
    platform.cloud.machines["web-1"] = standin_cloud.machine("web-1")
    done = enlist("cloud", "connections", "forget", "hetzner")
    assert done.code == 4
    platform.cloud.machines.clear()
    assert enlist("cloud", "connections", "forget", "hetzner").code == 0
    assert platform.cloud.connections == {}


def test_a_consent_is_given_in_money_and_withdrawn(
    enlist: Enlist, platform: standin.StandIn
) -> None:
    platform.cloud.connections["h"] = standin_cloud.connection("h")
    line = ("cloud", "connections", "consent", "h")
    assert enlist(*line, "--most-machines", "5").code == 2
    assert enlist(*line, "--most-machines", "5", "--most-hourly", "cheap").code == 2
    done = enlist(*line, "--most-machines", "5", "--most-hourly", "0.1", "--currency", "usd")
    assert done.code == 0, done.err
    assert platform.seen[-1].body == {
        "most_machines": 5,
        "most_hourly_micros": 100_000,
        "currency": "USD",
        "days": 90,
    }
    assert "5 machines, 0.1000 USD/h" in done.out
    assert "nothing is spent" in enlist(*line, "--withdraw").out


def test_check_keeps_nothing(enlist: Enlist, platform: standin.StandIn) -> None:
    done = enlist(*SAVE, "--secret-file", "-", "--check", stdin="hunter2")
    assert done.code == 0, done.err
    assert "save hetzner" in done.out
    assert platform.cloud.connections == {}
