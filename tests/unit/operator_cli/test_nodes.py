"""`enlist nodes`, for people and as JSON, and the exit codes."""

import datetime
from pathlib import Path

import httpx
import pytest
import yaml

from tests.support import standin
from tests.support.cli_runs import Enlist
from wire_protocol import enrollment_token

KEYS = {"node_id", "enrollment_id", "token", "join_token", "expires_at", "platform_url", "pins",
        "command"}  # fmt: skip


@pytest.fixture(autouse=True)
def _now(monkeypatch: pytest.MonkeyPatch) -> None:
    moment = standin.NOW + datetime.timedelta(seconds=42)
    monkeypatch.setattr("operator_cli.moments.now", lambda: moment)


def test_list_shows_state_compatibility_clock_last_seen_and_reason(
    enlist: Enlist, platform: standin.StandIn
) -> None:
    platform.add_node("web-1")
    platform.add_node(
        "web-2",
        state="unreachable",
        version=None,
        compatibility="unknown",
        clock_offset_ms=-61_000,
        last_seen_at=None,
        reason="not-heard-since-start",
        scheduling="maintenance",
    )
    enlist("nodes", "enroll-token", "web-3")
    done = enlist("nodes", "list")
    assert done.code == 0
    lines = [line.split("  ") for line in done.out.splitlines()]
    cells = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    assert cells[:3] == [
        ["NODE", "STATE", "VERSION", "COMPATIBILITY", "CLOCK", "LAST SEEN", "REASON"],
        ["web-1", "ready", "0.1.0", "current", "+12 ms", "42 s ago", "-"],
        ["web-2", "unreachable,maintenance", "-", "unknown", "-61.0 s", "-",
         "not-heard-since-start"],
    ]  # fmt: skip
    assert cells[-1][1:] == ["web-3", "in 59 min", "uid:0"]


def test_list_as_json_is_nodes_and_enrollments_over_all_pages(
    enlist: Enlist, platform: standin.StandIn
) -> None:
    platform.page = 2
    for name in ("a", "b", "c", "d", "e"):
        platform.add_node(name)
    enlist("nodes", "enroll-token", "f")
    found = enlist("nodes", "list", "-o", "json").json
    assert set(found) == {"nodes", "enrollments"}
    assert [node["node_id"] for node in found["nodes"]] == ["a", "b", "c", "d", "e"]
    assert [one["node_id"] for one in found["enrollments"]] == ["f"]
    assert found["nodes"][0]["enrolled_at"] == "2026-01-31T12:00:00Z"


def test_yaml_says_what_json_says(enlist: Enlist, platform: standin.StandIn) -> None:
    platform.add_node("a")
    document = enlist("nodes", "list", "-o", "json").json
    assert yaml.safe_load(enlist("nodes", "list", "-o", "yaml").out) == document


def test_what_a_machine_says_cannot_steer_the_terminal(
    enlist: Enlist, platform: standin.StandIn
) -> None:
    platform.add_node("a", reason="\x1b[2Jgone", reported_labels={"k": "\x9b1m"})
    for line in (["nodes", "list"], ["nodes", "show", "a"], ["nodes", "list", "-o", "json"]):
        out = enlist(*line).out
        assert "\x1b" not in out
        assert "\x9b" not in out


def test_show_prints_every_fact(enlist: Enlist, platform: standin.StandIn) -> None:
    platform.add_node("web-1", labels={"role": "web"})
    done = enlist("nodes", "show", "WEB-1.")
    assert "node_id             web-1" in done.out
    assert "labels              role=web" in done.out
    assert "last_seen_at        2026-01-31 12:00:00" in done.out
    assert enlist("nodes", "show", "web-1", "-o", "json").json["labels"] == {"role": "web"}


def test_a_node_that_is_not_there_is_code_5(enlist: Enlist, platform: standin.StandIn) -> None:
    del platform
    done = enlist("nodes", "show", "gone")
    assert (done.code, done.out, done.err) == (5, "", "Error: There is no node gone.\n")


def test_platform_prints_what_machines_are_told(enlist: Enlist, platform: standin.StandIn) -> None:
    del platform
    assert "0123456789abcdef" in enlist("nodes", "platform").out
    assert enlist("nodes", "platform", "-o", "json").json["pins"] == [standin.PIN]


def test_enroll_token_prints_the_paste_alone(enlist: Enlist, platform: standin.StandIn) -> None:
    del platform
    done = enlist("nodes", "enroll-token", "web-1")
    assert done.code == 0
    assert done.out == "enlist worker join - <<'END'\nenj_abc\nEND\n"
    assert "--address ADDRESS-OF-THAT-MACHINE" in done.err
    assert "before 2026-01-31 13:00:00" in done.err
    assert "enj_" not in done.err
    assert "ent_" not in done.err
    assert "no gateway" not in done.err


@pytest.mark.parametrize("more", [[], ["--raw"], ["-o", "json"]], ids=["table", "raw", "json"])
def test_without_a_gateway_issuing_says_that_the_machine_must_listen(
    more: list[str], enlist: Enlist, platform: standin.StandIn
) -> None:
    platform.has_gateway = False
    done = enlist("nodes", "enroll-token", "web-1", *more)
    assert done.code == 0
    assert "opens no gateway" in done.err
    assert "--address ADDRESS-OF-THAT-MACHINE" in done.err
    assert "gateway" not in done.out


def test_enroll_token_raw_is_the_join_token(enlist: Enlist, platform: standin.StandIn) -> None:
    del platform
    assert enlist("nodes", "enroll-token", "web-1", "--raw").out == "enj_abc\n"


def test_enroll_token_as_json_has_exactly_the_keys(
    enlist: Enlist, platform: standin.StandIn
) -> None:
    line = ["nodes", "enroll-token", "web-1", "--ttl-minutes", "5", "--label", "role=web"]
    done = enlist(*line, "--from", "10.0.0.0/8", "-o", "json")
    assert set(done.json) == KEYS
    assert platform.seen[-1].body == {
        "node_id": "web-1",
        "ttl_minutes": 5,
        "labels": {"role": "web"},
        "from": ["10.0.0.0/8"],
    }


def test_without_an_address_the_enrollment_token_is_printed_alone(
    enlist: Enlist, platform: standin.StandIn
) -> None:
    platform.has_address = False
    for more in ([], ["--raw"]):
        done = enlist("nodes", "enroll-token", "web-1", "--replace", *more)
        assert enrollment_token.parse(done.out.strip()).text() == done.out.strip()
        assert "--platform-url URL --node-id web-1" in done.err


def test_a_second_token_is_a_conflict_until_replaced(
    enlist: Enlist, platform: standin.StandIn
) -> None:
    assert enlist("nodes", "enroll-token", "web-1").code == 0
    assert enlist("nodes", "enroll-token", "web-1").code == 4
    assert enlist("nodes", "enroll-token", "web-1", "--replace").code == 0
    assert sorted(one.state for one in platform.enrollments.values()) == ["pending", "replaced"]


def test_a_token_lost_on_the_way_names_the_way_out(
    enlist: Enlist, platform: standin.StandIn
) -> None:
    def lose(request: httpx.Request) -> httpx.Response:
        platform.answer(request)
        raise httpx.ReadError("cut")

    platform.faults = [lose]
    done = enlist("nodes", "enroll-token", "web-1", "-o", "json")
    assert (done.code, done.out) == (6, "")
    assert done.err.endswith("enlist nodes enroll-token web-1 --replace\n")


def test_withdraw_token_finds_the_enrollment_of_the_node(
    enlist: Enlist, platform: standin.StandIn
) -> None:
    enlist("nodes", "enroll-token", "web-1")
    assert enlist("nodes", "withdraw-token", "web-1").out == "withdraw web-1: as asked\n"
    assert [one.state for one in platform.enrollments.values()] == ["revoked"]
    done = enlist("nodes", "withdraw-token", "web-1", "-o", "json")
    assert (done.code, done.out) == (5, "")


def _enroll(enlist: Enlist, home: Path) -> tuple[str, list[str]]:
    token: str = enlist("nodes", "enroll-token", "web-1", "-o", "json").json["token"]
    certificate = home / "cert.pem"
    certificate.write_text("-----BEGIN CERTIFICATE-----\n")
    return token, ["nodes", "enroll", "web-1", "--cert-file", str(certificate)]


def test_enroll_reads_the_token_from_stdin_and_writes_the_trust_set(
    enlist: Enlist, platform: standin.StandIn, home: Path
) -> None:
    token, line = _enroll(enlist, home)
    trust = home / "trust.json"
    line += ["--enrollment-token-file", "-", "--trust-out", str(trust)]
    done = enlist(*line, stdin=f"\ufeff{token}\n")
    assert done.code == 0
    assert "agent-web-1" in done.out
    assert "not reachable from the Platform: connection refused" in done.err
    assert token not in done.out + done.err
    assert trust.stat().st_mode & 0o777 == 0o600
    assert platform.seen[-1].body["token"] == token
    assert enlist(*line, "-o", "json", stdin=token).json["agent_id"] == "agent-web-1"


def test_a_token_as_an_argument_works_and_warns(
    enlist: Enlist, platform: standin.StandIn, home: Path
) -> None:
    del platform
    token, line = _enroll(enlist, home)
    done = enlist(*line, "--enrollment-token", token)
    assert done.code == 0
    assert "Warning: a token given as an argument" in done.err
    assert token not in done.err


def test_a_refused_enrollment_is_code_3(
    enlist: Enlist, platform: standin.StandIn, home: Path
) -> None:
    del platform
    _, line = _enroll(enlist, home)
    stranger = enrollment_token.new().text()
    done = enlist(*line, "--enrollment-token-file", "-", stdin=stranger)
    assert (done.code, done.err) == (3, "Error: Enrollment refused.\n")


def test_label_sets_and_takes_away(enlist: Enlist, platform: standin.StandIn) -> None:
    platform.add_node("web-1", labels={"rack": "7"})
    done = enlist("nodes", "label", "web-1", "role=web", "rack-")
    assert "role=web" in done.out
    assert platform.seen[-1].body == {"labels": {"role": "web", "rack": None}}
    done = enlist("nodes", "label", "web-1", "a=b", "-o", "json")
    assert done.json["labels"] == {"role": "web", "a": "b"}


CHANGES = ["remove", "allow", "maintenance", "drain", "resume"]


@pytest.mark.parametrize("verb", CHANGES)
def test_a_change_says_what_it_did(verb: str, enlist: Enlist, platform: standin.StandIn) -> None:
    platform.add_node("web-1")
    assert enlist("nodes", verb, "web-1").out == f"{verb} web-1: as asked\n"


@pytest.mark.parametrize("verb", CHANGES)
def test_a_change_under_check_changes_nothing(
    verb: str, enlist: Enlist, platform: standin.StandIn
) -> None:
    before = platform.add_node("web-1")
    done = enlist("nodes", verb, "web-1", "--check")
    assert done.out == f"Would do, nothing has been changed:\n{verb} web-1: as asked\n"
    assert enlist("--check", "nodes", verb, "web-1", "-o", "json").json == {
        "check": True,
        "changes": [{"action": verb, "target": "web-1", "detail": "as asked"}],
    }
    assert platform.nodes["web-1"] is before


def test_the_reason_travels(enlist: Enlist, platform: standin.StandIn) -> None:
    platform.add_node("web-1")
    enlist("nodes", "maintenance", "web-1", "--reason", "new disk")
    assert platform.seen[-1].body == {"reason": "new disk"}


def test_a_node_in_use_is_a_conflict_unless_forced(
    enlist: Enlist, platform: standin.StandIn
) -> None:
    platform.add_node("web-1", roles=["db"])
    assert enlist("nodes", "remove", "web-1").code == 4
    assert enlist("nodes", "remove", "web-1", "--force").code == 0


ANSWERS = {"no": 2, "yes": 0}


@pytest.mark.parametrize("answer", ANSWERS)
def test_removal_asks_on_a_terminal(
    answer: str, enlist: Enlist, platform: standin.StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform.add_node("web-1")
    monkeypatch.setattr("click.confirm", lambda *_text, **_more: answer == "yes")
    monkeypatch.setattr("operator_cli.connection.on_terminal", lambda: True)
    assert enlist("nodes", "remove", "web-1").code == ANSWERS[answer]
    assert platform.nodes["web-1"].state == ("removed" if answer == "yes" else "ready")


def test_yes_answers_on_a_terminal(
    enlist: Enlist, platform: standin.StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(*_text: object, **_more: object) -> bool:
        raise AssertionError("It must not ask.")

    platform.add_node("web-1")
    monkeypatch.setattr("operator_cli.connection.on_terminal", lambda: True)
    monkeypatch.setattr("click.confirm", ask)
    assert enlist("--yes", "nodes", "remove", "web-1").code == 0


def test_audit_lists_attempts(enlist: Enlist, platform: standin.StandIn) -> None:
    assert enlist("nodes", "audit").out == "No attempts to enroll so far.\n"
    platform.attempts = [standin.attempt()]
    done = enlist("nodes", "audit", "--limit", "5")
    assert done.out.splitlines()[1].split() == [
        "2026-01-31", "12:00:00", "refused", "3", "web-1", "-", "token-unknown",
    ]  # fmt: skip
    assert enlist("nodes", "audit", "-o", "json").json["attempts"][0]["count"] == 3


CODES = {
    "invalid": 2,
    "too-large": 2,
    "enrollment-refused": 3,
    "nodes-disabled": 4,
    "not-found": 5,
    "worker-newer": 6,
    "not-signed-in": 7,
    "not-permitted": 7,
    "unavailable": 75,
    "too-many": 75,
    "internal": 1,
}


@pytest.mark.parametrize("code", CODES)
def test_each_problem_ends_in_its_exit_code(
    code: str, enlist: Enlist, platform: standin.StandIn
) -> None:
    platform.faults = [standin.refusing(code, "As it is.") for _ in range(4)]
    done = enlist("nodes", "list", "-o", "json")
    assert (done.code, done.out) == (CODES[code], "")
    assert done.err.startswith("Error: As it is.")
    assert len(done.err.splitlines()) == 1


def test_without_a_terminal_the_token_must_be_given(
    enlist: Enlist, platform: standin.StandIn, home: Path
) -> None:
    _, line = _enroll(enlist, home)
    done = enlist(*line)
    assert (done.code, done.out) == (2, "")
    assert "--enrollment-token-file" in done.err
    assert platform.seen[-1].path == "/enrollments"
