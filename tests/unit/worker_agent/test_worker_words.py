"""The worker's words: exit codes by kind of failure, sources of tokens, the end of a join."""

import dataclasses
import datetime
import io
import pathlib

import pytest

from runtime_kit import dial, pinned_handshake, server_trust
from runtime_kit import failures as network
from runtime_kit.http1 import client
from tests.support import held_sets
from wire_protocol import ids, pins, problems
from worker_agent.door import refusals
from worker_agent.enrollment import flow, outcome, plan, secrets_in
from worker_agent.settings import agent_file, failures, join_file, paths

NOW = datetime.datetime(2026, 6, 1, tzinfo=datetime.UTC)
PIN = pins.Pin("sha256:" + "ab" * 32)

NETWORK: dict[network.NetworkFailure, int] = {
    dial.DialFailed("no answer"): 75,
    pinned_handshake.TlsFailed("broke off"): 75,
    client.NoAnswer("no answer"): 75,
    pinned_handshake.PinMismatch(expected=frozenset({PIN}), got="sha256:00", server="p:1"): 6,
    server_trust.ServerNotTrusted("expired"): 6,
    dial.ProxyAsksForCredentials("407"): 6,
    dial.ProxyMisconfigured("socks"): 6,
    dial.InvalidUrl("http"): 2,
}


@pytest.mark.parametrize("error", NETWORK, ids=lambda error: type(error).__name__)
def test_a_failure_of_the_network_ends_by_its_kind(error: network.NetworkFailure) -> None:
    failure = refusals.of_network(error, hint="Run: enlist nodes platform")
    assert failure.exit_code == NETWORK[error]
    if failure.exit_code == 6:
        assert str(failure).endswith("Run: enlist nodes platform")


@pytest.mark.parametrize("code", problems.CODES)
def test_a_problem_ends_with_the_exit_code_of_the_table(code: str) -> None:
    problem = problems.Problem(code=code, detail="So it is.", request_id="req_7")
    meaning = problem.meaning
    failure = refusals.of_answer(meaning.status, problem.to_json(), where="https://p")
    expected = (
        problems.Exit.REFUSED if meaning.exit is problems.Exit.NOT_PERMITTED else meaning.exit
    )
    assert failure.exit_code == expected
    if meaning.exit is not problems.Exit.NOT_FOUND:
        assert "So it is." in str(failure)
        assert "req_7" in str(failure)


def test_an_answer_of_another_kind_is_cut_to_a_sentence() -> None:
    failure = refusals.of_answer(500, b"<html>" * 100_000, where="https://p")
    assert len(str(failure)) < 200


def test_a_token_from_a_file_loses_its_blanks_and_byte_order_mark(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "token"
    file.write_bytes(b"\xef\xbb\xbf  enj_abc \r\n")
    assert secrets_in.from_file(str(file), flag="--join-token-file").reveal() == "enj_abc"


def test_a_token_from_stdin_is_read_whole() -> None:
    assert secrets_in.from_stdin(io.BytesIO(b"enj_abc\n")).reveal() == "enj_abc"


def test_a_token_as_an_argument_warns_without_repeating_it() -> None:
    warned: list[str] = []
    token = secrets_in.from_argument("enj_abc", flag="The join token", warn=warned.append)
    assert token.reveal() == "enj_abc"
    assert len(warned) == 1
    assert "enj_abc" not in warned[0]


def test_a_dash_reads_stdin_and_does_not_warn() -> None:
    warned: list[str] = []
    stdin = io.BytesIO(b"enj_abc")
    assert secrets_in.from_argument("-", flag="x", warn=warned.append, stdin=stdin)
    assert warned == []


@pytest.mark.parametrize("content", [b"", b" \n", b"x" * 20_000, b"\xff\xfe\x00"])
def test_what_can_be_no_token_is_refused(tmp_path: pathlib.Path, content: bytes) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    with pytest.raises(failures.Misuse):
        secrets_in.from_file(str(file), flag="--join-token-file")
    with pytest.raises(failures.Misuse):
        secrets_in.from_stdin(io.BytesIO(content))


def test_an_endless_file_is_not_read_for_ever() -> None:
    with pytest.raises(failures.Misuse, match="larger than"):
        secrets_in.from_file("/dev/zero", flag="--join-token-file")


AGENT = agent_file.AgentFile(
    node_id=ids.NodeId("web-1"),
    generation=1,
    connectivity=agent_file.Connectivity.LISTEN,
    addresses=("192.0.2.7",),
    port=8443,
    reported_labels={},
    gateway_url=None,
    gateway_pins=(),
    joined_at=NOW,
)
JOIN = join_file.JoinFile(
    platform_url="https://p.example:8444",
    platform_id=ids.PlatformId("plt_1"),
    node_id=ids.NodeId("web-1"),
    mode=join_file.Mode.PINS,
    given_pins=(PIN,),
    pins=(PIN,),
    ca_pem=None,
    enrollment_id=ids.EnrollmentId("0123456789abcdef"),
    joined_at=NOW,
)
DONE = outcome.Outcome(
    already_joined=False,
    agent=AGENT,
    join=JOIN,
    where=paths.Paths(folder=pathlib.Path("/var/lib/enlist/worker")),
    trust_key_ids=(),
    reachable=True,
    reachable_reason=None,
)


def test_a_reachable_machine_is_told_nothing_more() -> None:
    assert outcome.warnings_of(DONE) == ()


def test_an_unreachable_machine_is_told_the_address_and_the_reason() -> None:
    unreachable = dataclasses.replace(DONE, reachable=False, reachable_reason="no route")
    (warning,) = outcome.warnings_of(unreachable)
    assert "not reachable from the Platform at https://192.0.2.7:8443 (no route)" in warning


def test_a_join_that_was_done_before_says_so() -> None:
    already = plan.AlreadyJoined(agent=AGENT, join=JOIN)
    held = held_sets.held(held_sets.Key())
    told = outcome.of_earlier(already, held=held, where=DONE.where)
    assert told.to_text().startswith("This machine had joined already https://p.example:8444")
    assert told.to_document()["trust_keys"] == [held.statement.trust_keys[0].key_id]


OTHER = pins.Pin("sha256:" + "ef" * 32)
FINGERPRINT = pins.Pin("sha256:" + "12" * 32)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ((PIN,), (PIN,)),
        ((FINGERPRINT,), (PIN,)),
        ((OTHER, FINGERPRINT), (PIN, OTHER)),
        ((), ()),
    ],
)
def test_what_is_kept_is_the_keys_pin(
    given: tuple[pins.Pin, ...], kept: tuple[pins.Pin, ...]
) -> None:
    assert flow.kept_pins(given, leaf_pin=PIN, fingerprint=FINGERPRINT) == kept
