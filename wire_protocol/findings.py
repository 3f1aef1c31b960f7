"""What a checkup finds: one form for `enlist doctor` on every machine and in every program.

A finding is a superset of one check of the health body (`status, version, checks[]`): its name, how
it stands, a sentence, and for what does not stand well the kind of failure (one of three) and the
command that mends it. How many findings become one exit code is decided here and nowhere else.
"""

import dataclasses
import enum
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from wire_protocol import problems, strict_json

MAX_BYTES = 1_048_576
_MOST = 512  # findings of one document
_MOST_FACTS = 64


class Status(enum.StrEnum):
    """How a thing stands. What could not be looked at is skipped, and says why."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at. Never holds a secret."""

    name: str
    status: Status
    detail: str
    kind: problems.Kind | None = None
    command: str | None = None
    report_id: str | None = None  # of a fault of ours
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.status is Status.FAILED and self.kind is None:
            raise ValueError(f"{self.name}: what failed is of one of the three kinds.")
        if self.kind is problems.Kind.NEEDS_OPERATOR and not self.command:
            raise ValueError(f"{self.name}: what needs the operator names the command.")

    def within(self, place: str) -> Self:
        """The same finding under the name of the place where it was made, as `worker.trust`."""
        return dataclasses.replace(self, name=f"{place}.{self.name}")

    def to_wire(self) -> dict[str, Any]:
        """The JSON of one check."""
        return {
            "name": self.name,
            "status": self.status.value,
            "detail": self.detail,
            "class": None if self.kind is None else self.kind.value,
            "command": self.command,
            "report_id": self.report_id,
            "facts": dict(self.facts),
        }


def ok(name: str, detail: str, *, facts: Mapping[str, Any] | None = None) -> Finding:
    """It stands well."""
    return Finding(name=name, status=Status.OK, detail=detail, facts=facts or {})


def skipped(name: str, detail: str, *, facts: Mapping[str, Any] | None = None) -> Finding:
    """It was not looked at; the sentence says why."""
    return Finding(name=name, status=Status.SKIPPED, detail=detail, facts=facts or {})


def warning(
    name: str,
    detail: str,
    *,
    command: str | None = None,
    kind: problems.Kind | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Finding:
    """It works, and somebody should look at it."""
    return Finding(
        name=name,
        status=Status.WARNING,
        detail=detail,
        kind=kind or (problems.Kind.NEEDS_OPERATOR if command else None),
        command=command,
        facts=facts or {},
    )


def needs_operator(
    name: str, detail: str, *, command: str, facts: Mapping[str, Any] | None = None
) -> Finding:
    """It does not work until a person runs the command."""
    return Finding(
        name=name,
        status=Status.FAILED,
        detail=detail,
        kind=problems.Kind.NEEDS_OPERATOR,
        command=command,
        facts=facts or {},
    )


def transient(
    name: str,
    detail: str,
    *,
    command: str | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Finding:
    """It does not work now and may by itself; the command, if any, is where to look meanwhile."""
    return Finding(
        name=name,
        status=Status.FAILED,
        detail=detail,
        kind=problems.Kind.TRANSIENT,
        command=command,
        facts=facts or {},
    )


def permanent(
    name: str,
    detail: str,
    *,
    command: str | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Finding:
    """It does not work and will not by trying again."""
    return Finding(
        name=name,
        status=Status.FAILED,
        detail=detail,
        kind=problems.Kind.PERMANENT,
        command=command,
        facts=facts or {},
    )


def fault(name: str, *, sentence: str, report_id: str) -> Finding:
    """The check itself broke: a fault of ours, which says nothing of what it was to look at."""
    return Finding(
        name=name,
        status=Status.FAILED,
        detail=sentence,
        kind=problems.Kind.PERMANENT,
        report_id=report_id,
    )


def status_of(findings: Iterable[Finding]) -> Status:
    """One word for all: the worst of them; what was skipped says nothing."""
    found = {finding.status for finding in findings}
    return next((one for one in (Status.FAILED, Status.WARNING) if one in found), Status.OK)


def exit_code(findings: Iterable[Finding]) -> problems.Exit:
    """One exit code for all: what a person must do comes first, what may pass by itself last.

    Only what failed counts, so that a warning wakes nobody who runs this from a timer: 6 when
    anything needs the operator, else 1 for a fault of ours, else 3 for what will not mend by
    itself, else 75 for what may, else 0.
    """
    failed = [finding for finding in findings if finding.status is Status.FAILED]
    kinds = {finding.kind for finding in failed if finding.report_id is None}
    if problems.Kind.NEEDS_OPERATOR in kinds:
        return problems.Exit.NEEDS_OPERATOR
    if any(finding.report_id is not None for finding in failed):
        return problems.Exit.OUR_FAULT
    if problems.Kind.PERMANENT in kinds:
        return problems.Exit.REFUSED
    return problems.Exit.TEMPORARY if failed else problems.Exit.DONE


def document(findings: Sequence[Finding], *, version: str) -> dict[str, Any]:
    """The health body, the same everywhere."""
    return {
        "status": status_of(findings).value,
        "version": version,
        "checks": [finding.to_wire() for finding in findings],
    }


def parse(raw: bytes) -> tuple[Finding, ...]:
    """Reads the checks of such a body from another program; raises `strict_json.Malformed`."""
    checks = strict_json.read(raw, what="a checkup", most=MAX_BYTES).items("checks", most=_MOST)
    try:
        return tuple(_finding(check) for check in checks)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise strict_json.Malformed(f"A checkup is out of shape: {error}.") from error


def _finding(check: Mapping[str, Any]) -> Finding:
    kind, facts = check.get("class"), check.get("facts") or {}
    return Finding(
        name=str(check["name"])[:200],
        status=Status(check["status"]),
        detail=str(check.get("detail", ""))[:4000],
        kind=None if kind is None else problems.Kind(kind),
        command=_text(check.get("command"), most=1000),
        report_id=_text(check.get("report_id"), most=64),
        facts=dict(list(facts.items())[:_MOST_FACTS]),
    )


def _text(value: object, *, most: int) -> str | None:
    return None if value is None else str(value)[:most]
