"""Findings: their form, and how several of them become one exit code."""

import json

import pytest

from wire_protocol import findings, problems, strict_json

OK = findings.ok("a", "Well.")
WARNED = findings.warning("b", "Look.", command="look")
SKIPPED = findings.skipped("c", "Not now.")
TRANSIENT = findings.transient("d", "Later.")
PERMANENT = findings.permanent("e", "Never.")
OPERATOR = findings.needs_operator("f", "You.", command="do")
FAULT = findings.fault("g", sentence="Ours.", report_id="0a1b")

CODES = {
    "nothing was looked at": ((), 0),
    "all is well": ((OK, SKIPPED), 0),
    "a warning wakes nobody": ((OK, WARNED), 0),
    "something may pass by itself": ((OK, TRANSIENT), 75),
    "something does not pass": ((PERMANENT, TRANSIENT), 3),
    "the doctor itself has a fault": ((FAULT, PERMANENT, TRANSIENT), 1),
    "a person is needed before all else": ((FAULT, PERMANENT, TRANSIENT, OPERATOR), 6),
}


@pytest.mark.parametrize("case", CODES)
def test_several_findings_become_one_exit_code(case: str) -> None:
    found, code = CODES[case]
    assert findings.exit_code(found) == code
    assert findings.exit_code(reversed(found)) == code


def test_the_worst_finding_is_the_status_of_all() -> None:
    assert findings.status_of([OK, SKIPPED]) is findings.Status.OK
    assert findings.status_of([OK, WARNED]) is findings.Status.WARNING
    assert findings.status_of([WARNED, TRANSIENT]) is findings.Status.FAILED


def test_what_fails_has_a_class_and_what_needs_a_person_a_command() -> None:
    with pytest.raises(ValueError, match="three kinds"):
        findings.Finding(name="x", status=findings.Status.FAILED, detail="")
    with pytest.raises(ValueError, match="names the command"):
        findings.Finding(
            name="x",
            status=findings.Status.FAILED,
            detail="",
            kind=problems.Kind.NEEDS_OPERATOR,
        )


def test_a_document_is_read_back_as_it_was_written() -> None:
    every = (OK, WARNED, SKIPPED, TRANSIENT, PERMANENT, OPERATOR, FAULT)
    document = findings.document(every, version="1.2.3")
    assert document["version"] == "1.2.3"
    assert findings.parse(json.dumps(document).encode()) == every


@pytest.mark.parametrize(
    "raw",
    [b"", b"[]", b"{}", b'{"checks": 1}', b'{"checks": [1]}', b'{"checks": [{"name": "x"}]}',
     b'{"checks": [{"name": "x", "status": "odd"}]}',
     b'{"checks": [{"name": "x", "status": "failed"}]}',
     b'{"checks": [{"name": "x", "status": "ok", "facts": [1]}]}'],
)  # fmt: skip
def test_another_form_is_malformed(raw: bytes) -> None:
    with pytest.raises(strict_json.Malformed):
        findings.parse(raw)


def test_a_finding_stands_under_the_name_of_its_place() -> None:
    assert OK.within("worker").name == "worker.a"
