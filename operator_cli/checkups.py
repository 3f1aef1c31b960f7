"""Runs the checkups of a machine: all questions at once, each within its limit, told in order.

What is asked belongs to the programs (`worker_agent.doctor`, `platform_server.doctor`), which the
layers keep apart; here they meet by their form alone.
"""

import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from runtime_kit import mends, reports, side_by_side
from wire_protocol import findings

Found = tuple[findings.Finding, ...]


class Checkup(Protocol):
    """What can be looked at in one place."""

    @property
    def place(self) -> str:
        """`platform` or `worker`."""
        ...

    @property
    def title(self) -> str:
        """Which one it is, for people."""
        ...

    def jobs(self) -> Sequence[side_by_side.Job[Found]]:
        """The questions, in the order in which they are told."""
        ...

    def mends(self, found: Sequence[findings.Finding], /) -> Sequence[mends.Mend]:
        """What may be put right by itself."""
        ...

    def parts(self) -> Iterator[tuple[str, bytes]]:
        """What a support archive holds of it."""
        ...


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What one checkup found, under the names of its place."""

    title: str
    found: tuple[findings.Finding, ...]
    own: tuple[findings.Finding, ...]  # the same, as the checkup itself names them


async def run(checkups: Sequence[Checkup]) -> list[Report]:
    """Asks everything of every checkup at once."""
    side_by_side.use_daemon_threads()
    planned = [(one, one.jobs()) for one in checkups]
    answered = await side_by_side.run(
        [job for _, jobs in planned for job in jobs], late=_late, broken=_broken
    )
    found = iter(answered)
    made: list[Report] = []
    for one, jobs in planned:
        own = tuple(finding for _ in jobs for finding in next(found))
        named = tuple(finding.within(one.place) for finding in own)
        made.append(Report(title=one.title, found=named, own=own))
    return made


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """One mend and what came of it; `failed` says why it did not work."""

    mend: mends.Mend
    failed: str | None

    def to_wire(self) -> dict[str, str]:
        """As every change is told."""
        detail = self.mend.detail if self.failed is None else f"failed: {self.failed}"
        return {"action": self.mend.action, "target": self.mend.target, "detail": detail}


def possible(checkups: Sequence[Checkup], reports: Sequence[Report]) -> list[mends.Mend]:
    """What may be put right in all places; what two of them would do the same is done once."""
    found: dict[tuple[str, str, str], mends.Mend] = {}
    for one, report in zip(checkups, reports, strict=True):
        for mend in one.mends(report.own):
            found.setdefault((mend.action, mend.target, mend.detail), mend)
    return list(found.values())


def mend_all(possible: Sequence[mends.Mend], *, tell: Callable[[Done], None]) -> list[Done]:
    """Makes each change in turn and tells it; one that fails stops no other."""
    made: list[Done] = []
    for one in possible:
        failed = None
        try:
            one.apply()
        except mends.CannotMend as error:
            failed = str(error)
        made.append(Done(mend=one, failed=failed))
        tell(made[-1])
    return made


def _late(job: side_by_side.Job[Found]) -> Found:
    return (findings.transient(job.name, f"No answer within {job.seconds:g} s."),)


def _broken(job: side_by_side.Job[Found], error: Exception) -> Found:
    report = reports.write(error, environment=os.environ)
    return (
        findings.fault(
            job.name,
            sentence=f"It could not be looked at. {report.sentence}",
            report_id=report.report_id,
        ),
    )
