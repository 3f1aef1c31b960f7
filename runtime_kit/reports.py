"""What a program leaves behind when it meets a fault of ours: an id, and a private file.

API::

    report = reports.write(error, environment=os.environ)
    report.sentence          one line for stderr: what, which id, where the file lies

For: a program's last handler. The file holds the frames and the kinds of the errors alone: the
message of an unforeseen error may hold anything, a secret too.
Not for: failures that a program knows.
Known limit: the newest reports are kept and older ones removed, so that a program which systemd
starts again and again fills no disk.
"""

import dataclasses
import os
import traceback
from collections.abc import Mapping
from pathlib import Path

_MOST_KEPT = 50
_MOST_CAUSES = 8


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One report; `place` is None where no file could be written."""

    report_id: str
    kind: str
    place: Path | None

    @property
    def sentence(self) -> str:
        """What a person is told."""
        where = f" The report is in {self.place}." if self.place else ""
        return (
            f"A fault of ours ({self.kind}), report {self.report_id}.{where} "
            "Run the command again with --debug to see more."
        )


def write(error: BaseException, *, environment: Mapping[str, str]) -> Report:
    """Writes the report; never raises for want of a place."""
    report_id = os.urandom(6).hex()
    kind = type(error).__name__
    try:
        folder = _folder(environment)
        place = folder / f"{report_id}.txt"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _forget_older(folder)
        handle = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(_text(error))
    except (OSError, RuntimeError):  # the latter: nobody knows where home is
        return Report(report_id=report_id, kind=kind, place=None)
    return Report(report_id=report_id, kind=kind, place=place)


def _folder(environment: Mapping[str, str]) -> Path:
    base = environment.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(base).expanduser() / "enlist" / "reports"


def _forget_older(folder: Path) -> None:
    found = sorted(folder.glob("*.txt"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in found[_MOST_KEPT - 1 :]:
        path.unlink(missing_ok=True)


def _text(error: BaseException) -> str:
    parts: list[str] = []
    seen: BaseException | None = error
    while seen is not None and len(parts) < _MOST_CAUSES:
        frames = "".join(traceback.format_tb(seen.__traceback__))
        parts.append(f"{frames}{type(seen).__qualname__}\n")
        seen = seen.__cause__ or seen.__context__
    return "caused by\n".join(parts)
