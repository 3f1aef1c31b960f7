"""One line of a terminal that says how far a long work has come, and leaves nothing behind."""

import io

from runtime_kit import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _shown(out: io.StringIO, *, steps: int, total: int | None) -> str:
    now = [0.0]
    with progress.Progress("Reading", total=total, out=out, monotonic=lambda: now[0]) as told:
        for _ in range(steps):
            now[0] += 0.5
            told(1_500_000)
    return out.getvalue()


def test_what_is_done_within_a_second_shows_nothing() -> None:
    assert _shown(Terminal(), steps=1, total=None) == ""


def test_longer_work_shows_how_far_it_is_and_takes_its_line_away() -> None:
    shown = _shown(Terminal(), steps=3, total=6_000_000)
    assert "Reading: 3.0 of 6.0 MB" in shown
    assert "Reading: 4.5 of 6.0 MB" in shown
    assert shown.endswith("\r\x1b[K")
    assert "\n" not in shown


def test_without_a_known_end_it_says_how_much_there_is() -> None:
    assert "Reading: 3.0 MB" in _shown(Terminal(), steps=3, total=None)


def test_where_there_is_no_terminal_nothing_is_written() -> None:
    assert _shown(io.StringIO(), steps=9, total=None) == ""
