import json

import pytest

from platform_server.listener import notes


def test_a_note_is_one_line_of_json_with_bounded_fields(capsys: pytest.CaptureFixture[str]) -> None:
    notes.write("Listening", level="error", pid=7, path="/x", reason="a\nb" + "c" * 1000)
    out, said = capsys.readouterr()
    assert (out, said.count("\n")) == ("", 1)
    note = json.loads(said)
    assert (note["event"], note["level"], note["part"], note["pid"]) == (
        *("Listening", "error", "listener"),
        7,
    )
    assert len(note["reason"]) == 500


def test_a_tally_gives_what_was_counted_once_and_nothing_where_nothing_was() -> None:
    tally = notes.Tally()
    tally.count("handshakes_failed")
    tally.count("handshakes_failed", times=2)
    tally.count("closed", times=0)
    assert tally.take() == {"handshakes_failed": 3}
    assert tally.take() == {}


def test_counts_are_written_as_one_note(capsys: pytest.CaptureFixture[str]) -> None:
    notes.write_counts("Stopped", counts={"refused_404": 2})
    assert json.loads(capsys.readouterr().err)["refused_404_count"] == 2
