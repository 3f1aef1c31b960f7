"""How the Python half ends: a report's id for what nobody foresaw, and nothing of what it said."""

import pathlib
import re

import pytest

from installer import changeover, command, programs
from installer import progress as progress_kit

SECRET = "enj_" + "c" * 40


def unforeseen(chosen: object, progress: progress_kit.Progress) -> int:
    del chosen, progress
    raise LookupError(SECRET)


def test_an_unforeseen_error_gives_a_report_id_and_never_its_message(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "_install", unforeseen)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert command.main(["--role", "worker", "--prefix", str(tmp_path / "e")]) == 1
    said = capsys.readouterr().err
    found = re.search(r"report ([0-9a-f]{12})", said)
    assert found is not None, said
    assert SECRET not in said
    (report,) = (tmp_path / "enlist" / "reports").iterdir()
    assert report.stem == found[1]
    assert SECRET not in report.read_text()


def test_an_agents_last_words_command_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    def answers(arguments: object, **how: object) -> object:
        del arguments, how
        text = "\x1b[2J\x1b]52;c;aGk=\x07died\nthen \u202e\x9b5n\n"
        return type("Done", (), {"stdout": text, "returncode": 0})

    monkeypatch.setattr(programs, "ask", answers)
    said = changeover.Systemd().why("enlist-agent.service")
    assert said == "It said: ?[2J?]52;c;aGk=?died | then ??5n"
    assert said.isprintable()
