"""tokens, audit, events, platform and config, for people and as JSON; and which Platform."""

import json
from pathlib import Path

import httpx
import pytest

from enlist import targets
from operator_cli import connection, global_options
from tests.support import standin
from tests.support.cli_runs import Enlist


def test_a_token_is_printed_alone_and_once(enlist: Enlist, platform: standin.StandIn) -> None:
    line = ["tokens", "create", "--permission", "nodes.view", "--permission", "nodes.enroll"]
    done = enlist(*line, "--name", "pipeline", "--expires", "4w")
    assert (done.code, done.out) == (0, "ena_secret\n")
    assert "0000000000000000 (pipeline), valid until 2026-02-28 12:00:00" in done.err
    assert "ena_secret" not in done.err
    assert platform.seen[-1].body == {
        "name": "pipeline",
        "permissions": ["nodes.view", "nodes.enroll"],
        "ttl_days": 28,
    }


def test_a_token_as_json_is_one_document(enlist: Enlist, platform: standin.StandIn) -> None:
    line = ["tokens", "create", "--permission", "nodes.view", "--expires", "never"]
    found = enlist(*line, "-o", "json").json
    assert found["token"] == "ena_secret"
    assert found["record"]["expires_at"] is None
    assert platform.seen[-1].body["name"].endswith("'s token")


def test_an_unknown_permission_is_invalid(enlist: Enlist, platform: standin.StandIn) -> None:
    del platform
    assert enlist("tokens", "create", "--permission", "all").code == 2


def test_a_token_lives_for_whole_days(enlist: Enlist, platform: standin.StandIn) -> None:
    assert enlist("tokens", "create", "--permission", "p", "--expires", "12h").code == 2
    assert platform.seen == []


def test_tokens_are_listed_and_revoked(enlist: Enlist, platform: standin.StandIn) -> None:
    assert enlist("tokens", "list").out.startswith("No tokens.")
    enlist("tokens", "create", "--permission", "nodes.view", "--name", "n")
    (head, row) = enlist("tokens", "list").out.splitlines()
    assert head.split()[:3] == ["TOKEN", "NAME", "PERMISSIONS"]
    assert row.split()[:3] == ["0" * 16, "n", "nodes.view"]
    listed = enlist("tokens", "list", "-o", "json")
    assert [one["token_id"] for one in listed.json["tokens"]] == ["0" * 16]
    assert "ena_secret" not in listed.out
    assert enlist("tokens", "revoke", "0" * 16).out.startswith("revoke 0000000000000000")
    assert platform.tokens["0" * 16].revoked_at is not None
    assert enlist("tokens", "revoke", "f" * 16).code == 5


def test_audit_list_shows_who_did_what(enlist: Enlist, platform: standin.StandIn) -> None:
    platform.entries = [standin.entry(2, details={"force": True}), standin.entry(1, actor="t:1")]
    done = enlist("audit", "list", "--since", "2026-01-01T00:00:00+01:00", "--action", "x")
    assert done.out.splitlines()[1].split() == [
        "2", "2026-01-31", "12:00:00", "uid:0", "nodes.remove", "node:web-1", "force=true",
    ]  # fmt: skip
    assert platform.seen[-1].query["since"] == ["2025-12-31T23:00:00Z"]
    assert platform.seen[-1].query["action"] == ["x"]
    found = enlist("audit", "list", "--actor", "t:1", "-o", "json").json
    assert [entry["seq"] for entry in found["entries"]] == [1]


def test_audit_verify_says_that_the_log_is_whole(enlist: Enlist, platform: standin.StandIn) -> None:
    del platform
    assert enlist("audit", "verify").out == "The log is whole: 0 entries.\n"
    assert enlist("audit", "verify", "-o", "json").json["intact"] is True


def test_a_broken_log_needs_the_operator(enlist: Enlist, platform: standin.StandIn) -> None:
    broken = {"intact": False, "entries": 9, "broken_at": 4, "detail": "Entry 4 was changed."}
    platform.faults = [lambda _request: standin.response(200, json.dumps(broken).encode())]
    done = enlist("audit", "verify")
    assert (done.code, done.out) == (6, "Entry 4 was changed.\n")
    assert done.err.endswith("enlist audit export\n")


def test_audit_export_is_lines_or_one_document(enlist: Enlist, platform: standin.StandIn) -> None:
    platform.entries = [standin.entry(2), standin.entry(1)]
    lines = enlist("audit", "export").out.splitlines()
    assert [json.loads(line)["seq"] for line in lines] == [2, 1]
    assert len(enlist("audit", "export", "-o", "json").json["entries"]) == 2


def test_events_are_printed_oldest_first(enlist: Enlist, platform: standin.StandIn) -> None:
    assert enlist("events").out == "No events.\n"
    platform.events = [standin.event(1), standin.event(2, kind="node.removed")]
    assert enlist("events").out.splitlines()[2].split() == [
        "2", "2026-01-31", "12:00:00", "node.removed", "web-1", "a=b",
    ]  # fmt: skip
    found = enlist("events", "--after", "1", "-o", "json").json
    assert [event["seq"] for event in found["events"]] == [2]


def test_following_events_prints_one_a_line_until_it_ends(
    enlist: Enlist, platform: standin.StandIn
) -> None:
    platform.events = [standin.event(1), standin.event(2)]
    platform.endings = 1
    done = enlist("events", "--follow", "-o", "json")
    assert [json.loads(line)["seq"] for line in done.out.splitlines()] == [1, 2]
    assert done.code == 7


def test_platform_show_lists_addresses_and_keys(enlist: Enlist, platform: standin.StandIn) -> None:
    del platform
    out = enlist("platform", "show").out
    assert "enrollment_url      https://10.0.0.1:8444" in out
    assert "0123456789abcdef  2026-01-31 12:00:00  2027-01-31 12:00:00" in out
    assert f"api_pins            {standin.PIN}" in out
    assert enlist("platform", "show", "-o", "json").json["epoch"] == 1


@pytest.mark.parametrize("key", ["trust-key", "master-key"])
def test_keys_are_rotated(key: str, enlist: Enlist, platform: standin.StandIn) -> None:
    assert enlist("platform", f"rotate-{key}", "--check").out.startswith("Would do")
    assert enlist("platform", f"rotate-{key}").out == f"rotate-{key} platform: as asked\n"
    done = enlist("platform", f"rotate-{key}", "-o", "json")
    assert done.json["changes"][0]["target"] == "platform"
    assert platform.seen[-1].path == f"/platform/rotate-{key}"


TLS_KEY = {
    "as the Platform does it": ([], {"port": "enrollment"}),
    "after a while": (["--after", "2d"], {"port": "enrollment", "after_seconds": 172_800}),
    "at once": (["--now"], {"port": "enrollment", "after_seconds": 0}),
    "the gateway's": (["--port", "gateway"], {"port": "gateway"}),
}


@pytest.mark.parametrize("case", TLS_KEY)
def test_a_ports_key_is_changed(case: str, enlist: Enlist, platform: standin.StandIn) -> None:
    more, body = TLS_KEY[case]
    done = enlist("platform", "rotate-tls-key", *more, "-o", "json")
    assert done.json["changes"][0]["action"] == "rotate-tls-key"
    assert (platform.seen[-1].path, platform.seen[-1].body) == ("/platform/rotate-tls-key", body)


WRONG_TLS_KEY = {
    "a port that there is not": (["--port", "bundle"], "'enrollment', 'gateway'"),
    "two times": (["--now", "--after", "2d"], "not both"),
    "no time": (["--after", "soon"], "write 30m, 12h, 7d or 4w"),
}


@pytest.mark.parametrize("case", WRONG_TLS_KEY)
def test_a_mistake_about_a_ports_key_sends_nothing(
    case: str, enlist: Enlist, platform: standin.StandIn
) -> None:
    more, words = WRONG_TLS_KEY[case]
    done = enlist("platform", "rotate-tls-key", *more)
    assert (done.code, done.out) == (2, "")
    assert words in done.err
    assert platform.seen == []


def test_contexts_are_kept_used_and_forgotten(enlist: Enlist, home: Path) -> None:
    line = ["config", "add-context"]
    token = home / "token"
    token.write_text("t")
    done = enlist(*line, "prod", "--url", "https://p:8440/", "--pin", standin.PIN.upper(),
                  "--token-file", str(token))  # fmt: skip
    assert (done.code, done.out, done.err) == (0, "", "Context prod is kept.\n")
    enlist(*line, "lab", "--url", "https://lab:8440")
    file = home / ".config/enlist/config.toml"
    assert file.stat().st_mode & 0o777 == 0o600
    found = enlist("config", "list", "-o", "json").json
    assert found["current"] == "prod"
    assert found["contexts"][1] == {
        "name": "prod",
        "url": "https://p:8440",
        "pins": [standin.PIN],
        "ca_file": None,
        "token_file": str(token),
    }
    assert enlist("config", "use", "lab").code == 0
    assert enlist("config", "list").out.splitlines()[1].split()[:3] == [
        "*", "lab", "https://lab:8440",
    ]  # fmt: skip
    assert enlist("config", "remove-context", "lab").code == 0
    assert enlist("config", "list", "-o", "json").json["current"] is None
    assert enlist("config", "use", "lab").code == 5


def test_a_context_under_check_is_not_kept(enlist: Enlist, home: Path) -> None:
    enlist("config", "add-context", "prod", "--url", "https://p", "--check")
    assert not (home / ".config").exists()


BROKEN = {
    "no TOML": "contexts = ",
    "an unknown name": '[contexts.a]\nurl = "https://a"\ninsecure = true\n',
    "no url": "[contexts.a]\n",
    "a current one that is not there": 'current = "b"\n',
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_a_broken_config_is_invalid_and_named(text: str, enlist: Enlist, home: Path) -> None:
    file = home / ".config/enlist/config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    done = enlist("nodes", "list")
    assert (done.code, done.out) == (2, "")
    assert str(file) in done.err


CONFIG = f"""
current = "prod"
[contexts.prod]
url = "https://prod:8440"
pins = ["{standin.PIN}"]
token_file = "TOKEN"
[contexts.lab]
url = "https://lab:8440"
"""
CHOICES: dict[str, tuple[dict[str, str], dict[str, str], str]] = {
    "the flag for an address": ({"platform": "https://x"}, {"ENLIST_PLATFORM": "https://y"},
                                "https://x"),
    "the flag for a folder beats the environment": (
        {"data_dir": "/d"}, {"ENLIST_PLATFORM": "https://y"}, "/d/run/platform.sock"),
    "the environment's address": ({}, {"ENLIST_PLATFORM": "https://y", "ENLIST_DATA_DIR": "/e"},
                                  "https://y"),
    "the environment's folder": ({}, {"ENLIST_DATA_DIR": "/e"}, "/e/run/platform.sock"),
    "the current context": ({}, {}, "https://prod:8440"),
}  # fmt: skip


@pytest.mark.parametrize("case", CHOICES.values(), ids=CHOICES)
def test_the_platform_is(case: tuple[dict[str, str], dict[str, str], str], home: Path) -> None:
    target = _choose(case[0], case[1], home)
    assert (str(target.socket) if target.socket else target.origin) == case[2]


def test_a_context_brings_its_pin_and_its_token(home: Path) -> None:
    for typed in ({}, {"platform": "https://prod:8440"}):
        target = _choose(typed, {}, home)
        assert target.pins == {standin.PIN}
        assert target.token is not None
        assert target.token.reveal() == "from-context"


def test_another_address_gets_neither_pin_nor_token_of_the_current_context(home: Path) -> None:
    target = _choose({"platform": "https://lab:8440"}, {}, home)
    assert (target.pins, target.token) == (frozenset(), None)


def test_a_token_given_nearer_wins(home: Path) -> None:
    target = _choose({}, {"ENLIST_TOKEN": "from-environment"}, home)
    assert target.token is not None
    assert target.token.reveal() == "from-environment"


def _choose(typed: dict[str, str], environment: dict[str, str], home: Path) -> targets.Target:
    file, token = home / "config.toml", home / "token"
    token.write_text("from-context\n")
    file.write_text(CONFIG.replace("TOKEN", str(token)))
    options = global_options.Options(environment={**environment, "ENLIST_CONFIG": str(file)})
    for name, value in typed.items():
        options.take(name, value)
    return connection.choose(options)


def test_without_anything_it_is_this_accounts_platform(home: Path) -> None:
    options = global_options.Options(environment={"ENLIST_CONFIG": str(home / "none")})
    assert connection.choose(options).socket == targets.default_data_dir() / "run/platform.sock"


def test_the_token_file_may_be_stdin(enlist: Enlist, platform: standin.StandIn) -> None:
    assert enlist("--token-file", "-", "nodes", "list", stdin="from-stdin\n").code == 0
    assert platform.seen[-1].headers["authorization"] == "Bearer from-stdin"


def test_a_token_file_that_cannot_be_read_is_named(
    enlist: Enlist, platform: standin.StandIn
) -> None:
    done = enlist("--token-file", "/nowhere/token", "nodes", "list")
    assert done.code == 2
    assert "/nowhere/token" in done.err
    assert platform.seen == []


def test_no_connection_is_temporary(enlist: Enlist, platform: standin.StandIn) -> None:
    def refuse(_request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("x") from OSError(111, "Connection refused")

    platform.faults = [refuse] * 9
    done = enlist("nodes", "list")
    assert done.code == 75
    assert done.err == "Error: No connection to https://127.0.0.1:8440: Connection refused.\n"
