"""Problems, versions, labels, addresses and models: the form of each on the wire."""

import datetime

import pydantic
import pytest

from wire_protocol import (
    admin,
    agent_url,
    enrollment,
    enrollment_token,
    health,
    ids,
    labels,
    problems,
    times,
    versions,
)


def test_a_problem_reads_back_from_the_wire() -> None:
    problem = problems.Problem(
        code="node-exists", detail="Web-1 exists.", request_id="r1", fields={"node_id": "web-1"}
    )
    assert problems.parse(409, problem.to_json()) == problem


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"code": 5}', b"[" * 100_000])
def test_an_answer_that_is_no_problem_document_is_read_by_its_status(body: bytes) -> None:
    assert problems.parse(503, body).meaning.exit is problems.Exit.TEMPORARY


def test_every_code_has_an_exit_that_fits_its_kind() -> None:
    for name, code in problems.CODES.items():
        transient = code.kind is problems.Kind.TRANSIENT
        assert transient == (code.exit is problems.Exit.TEMPORARY), name
        assert transient == (code.status in (429, 503)), name


@pytest.mark.parametrize(
    ("node", "platform", "shown"),
    [
        ("1.2.3", "1.2.3", "current"),
        ("1.2.3", "1.10.0", "behind"),
        ("2.0.0", "1.10.0", "current"),
        ("1.2.3-rc1", "1.2.3", "current"),
        ("yesterday", "1.0.0", "unknown"),
        (None, "1.0.0", "unknown"),
    ],
)
def test_compatibility_compares_numbers_and_not_letters(
    node: str | None, platform: str, shown: str
) -> None:
    assert versions.compatibility(node, platform_version=platform) == shown


def test_labels_are_read_from_pairs() -> None:
    assert labels.parse(["zone=eu-1", "gpu="]) == {"zone": "eu-1", "gpu": ""}


@pytest.mark.parametrize(
    "pairs", [["x"], ["X=1"], ["a=b c"], ["a=1", "a=2"], ["=1"], ["a" * 64 + "=1"]]
)
def test_labels_out_of_shape_are_refused(pairs: list[str]) -> None:
    with pytest.raises(ValueError, match="label"):
        labels.parse(pairs)


def test_a_machine_reports_at_most_sixteen_labels() -> None:
    with pytest.raises(ValueError, match="At most 16"):
        labels.parse([f"k{i}=v" for i in range(17)], most=labels.MOST_REPORTED)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("https://10.0.0.1:8443", "https://10.0.0.1:8443"),
        ("https://[2001:DB8::1]:8443/", "https://[2001:db8::1]:8443"),
        ("https://W1.example.:9000", "https://w1.example:9000"),
    ],
)
def test_an_agents_url_is_an_origin(written: str, read: str) -> None:
    assert str(agent_url.parse(written)) == read


@pytest.mark.parametrize(
    "broken",
    [
        "http://a:8443", "https://a", "https://a:80", "https://a:99999", "https://a:8443/x",
        "https://u@a:8443", "https://a:8443?x", "https://a:8443#", "https://:8443", "a:8443",
        "https://1.2.3:8443", "https://[fe80::1%25eth0]:8443", "https://a b:8443", "https://[:8443",
    ],
)  # fmt: skip
def test_anything_else_is_no_agents_url(broken: str) -> None:
    with pytest.raises(ValueError, match=r"URL|address"):
        agent_url.parse(broken)


def test_a_time_needs_its_zone() -> None:
    with pytest.raises(ValueError, match="zone"):
        times.from_rfc3339("2026-01-01T00:00:00")


def test_times_read_back_in_utc() -> None:
    moment = datetime.datetime(2026, 1, 1, 1, 2, 3, 4, tzinfo=datetime.UTC)
    assert times.from_rfc3339(times.to_rfc3339(moment)) == moment
    assert times.to_rfc3339(moment).endswith("Z")


def test_a_health_answer_reads_back() -> None:
    answer = health.AgentHealth(
        node_id=ids.NodeId("w1"),
        agent_id=ids.AgentId("agent-w1"),
        version="0.1.0",
        now=datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
        trust_keys=(ids.KeyId("0" * 16),),
    )
    assert health.parse(answer.to_bytes()) == answer


def test_a_refused_enroll_request_names_the_field_and_never_the_token() -> None:
    token = enrollment_token.new()
    with pytest.raises(pydantic.ValidationError) as caught:
        enrollment.EnrollRequest.model_validate(
            {
                "node_id": "-",
                "token": token.text()[:-1] + "!",
                "certificate_pem": "x",
                "version": "1.0.0",
            }
        )
    said = str(caught.value.errors(include_input=False, include_context=False))
    assert "node_id" in said
    assert token.secret_hex not in said


def test_issuing_refuses_what_it_does_not_know() -> None:
    """Asking for single use with a count is refused, not silently changed (lesson B16)."""
    with pytest.raises(pydantic.ValidationError, match="max_uses"):
        admin.IssueRequest.model_validate({"node_id": "a", "max_uses": 5})


@pytest.mark.parametrize("version", ["٠.١.٠", "1.2", "1.2.3\n", "v1.2.3", "1.2.3 "])  # noqa: RUF001
def test_a_version_out_of_shape_is_refused_by_model_and_reader_alike(version: str) -> None:
    request = {
        "node_id": "a",
        "token": enrollment_token.new().text(),
        "certificate_pem": "x",
        "version": version,
    }
    with pytest.raises(pydantic.ValidationError, match="version"):
        enrollment.EnrollRequest.model_validate(request)
    with pytest.raises(ValueError, match="form"):
        versions.parse(version)
