"""Reports of faults of ours: an id, frames and kinds in a private file, and never too many."""

import pathlib
import stat

from runtime_kit import reports

SECRET = "hunter2"


def fault() -> Exception:
    try:
        int(SECRET)
    except ValueError as inner:
        outer = RuntimeError(f"{SECRET} again")
        outer.__cause__ = inner
        return outer
    raise AssertionError


def test_a_report_holds_where_it_happened_and_no_message(tmp_path: pathlib.Path) -> None:
    report = reports.write(fault(), environment={"XDG_STATE_HOME": str(tmp_path)})
    assert report.place == tmp_path / "enlist" / "reports" / f"{report.report_id}.txt"
    text = report.place.read_text()
    assert "RuntimeError" in text
    assert "ValueError" in text
    assert __file__ in text
    assert SECRET not in text
    assert stat.S_IMODE(report.place.stat().st_mode) == 0o600
    assert report.report_id in report.sentence
    assert str(report.place) in report.sentence


def test_where_nothing_can_be_written_the_id_is_told_all_the_same(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").touch()
    report = reports.write(fault(), environment={"XDG_STATE_HOME": str(tmp_path / "file")})
    assert report.place is None
    assert report.report_id in report.sentence


def test_a_program_that_dies_again_and_again_fills_no_disk(tmp_path: pathlib.Path) -> None:
    for _ in range(60):
        last = reports.write(fault(), environment={"XDG_STATE_HOME": str(tmp_path)})
    kept = list((tmp_path / "enlist" / "reports").iterdir())
    assert len(kept) == 50
    assert last.place in kept
