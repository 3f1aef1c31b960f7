import json
import logging

import pytest

from platform_server.app import logs
from platform_server.edge import notes


def test_a_note_is_one_line_of_json_with_bounded_fields(capsys: pytest.CaptureFixture[str]) -> None:
    notes.write("Listening", level="error", pid=7, path="/x", reason="a\nb" + "c" * 1000)
    out, said = capsys.readouterr()
    assert (out, said.count("\n")) == ("", 1)
    note = json.loads(said)
    assert (note["event"], note["level"], note["process"], note["pid"]) == (
        *("Listening", "error", "listener"),
        7,
    )
    assert note["timestamp"].endswith("Z")
    assert len(note["reason"]) == 500


def test_a_note_has_the_fields_of_the_engines_log(capsys: pytest.CaptureFixture[str]) -> None:
    before = logging.getLogger().handlers, logging.getLogger().level
    try:
        logs.configure(level="info", form="json", process="engine")
        logging.getLogger("enlist").warning("Said")
    finally:
        logging.getLogger().handlers, level = before
        logging.getLogger().setLevel(level)
    notes.write("Said", level="warning")
    engines, listeners = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert listeners.keys() == engines.keys()
    assert len(listeners["timestamp"]) == len(engines["timestamp"])


def test_the_host_says_which_notes_are_written_and_in_which_form(
    capsys: pytest.CaptureFixture[str],
) -> None:
    try:
        notes.configure(level="warning", form="console", process="bundles")
        notes.write("Listening")
        notes.write("Could not start", level="error", reason="a\nb")
    finally:
        notes.configure(level="info", form="json", process="listener")
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "[error    ] Could not start" in said
    assert "process='bundles' reason='a\\nb'" in said


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
