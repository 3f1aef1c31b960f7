"""Findings as lines for people: a mark, the name, a sentence, and the command under what is wrong.

What was skipped and what was measured are told with `--verbose` alone.
"""

import json
import sys
from collections.abc import Iterator, Sequence

import click

from operator_cli import checkups, columns
from wire_protocol import findings, problems

_MARKS = {
    findings.Status.OK: ("✓", "+", "green"),
    findings.Status.WARNING: ("!", "!", "yellow"),
    findings.Status.FAILED: ("✗", "x", "red"),
    findings.Status.SKIPPED: ("-", "-", None),
}
_WORDS = {
    problems.Kind.TRANSIENT: "may pass by itself",
    problems.Kind.PERMANENT: "does not pass by itself",
    problems.Kind.NEEDS_OPERATOR: "needs you",
}


def of(reports: Sequence[checkups.Report], *, verbose: bool) -> Iterator[str]:
    """All lines, one block a place, then one line that sums up."""
    every = [finding for report in reports for finding in report.found]
    for report in reports:
        yield click.style(columns.clean(report.title), bold=True)
        width = max((len(finding.name) for finding in report.own), default=0)
        for finding in report.own:
            if verbose or finding.status is not findings.Status.SKIPPED:
                yield from _lines(finding, width=width, verbose=verbose)
        yield ""
    yield _sum(every)


def _lines(finding: findings.Finding, *, width: int, verbose: bool) -> Iterator[str]:
    fine, plain, color = _MARKS[finding.status]
    mark = click.style(fine if _speaks_unicode() else plain, fg=color)
    kind = ""
    if finding.status is findings.Status.FAILED and finding.kind is not None:
        kind = f" ({_WORDS[finding.kind]})"
    yield f"  {mark} {finding.name.ljust(width)}  {columns.clean(finding.detail)}{kind}"
    if finding.command:
        yield f"    {' ' * width}  Run: {columns.clean(finding.command)}"
    if verbose and finding.facts:
        for name, value in finding.facts.items():
            shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=True)
            yield f"    {' ' * width}  {columns.clean(name)}: {columns.clean(shown)}"


def _sum(every: Sequence[findings.Finding]) -> str:
    failed = sum(finding.status is findings.Status.FAILED for finding in every)
    warned = sum(finding.status is findings.Status.WARNING for finding in every)
    if not failed and not warned:
        return "All is well."
    parts = [f"{failed} failed"] if failed else []
    parts += [f"{warned} to look at"] if warned else []
    return f"{', '.join(parts)}."


def _speaks_unicode() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
