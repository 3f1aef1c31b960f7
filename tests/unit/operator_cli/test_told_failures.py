"""What a failure prints: plain text, whatever the other side said."""

import pytest

from operator_cli import failures


class Told(Exception):
    """A failure with its own exit code."""

    exit_code = 4


def test_what_another_side_said_cannot_command_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    hostile = "no \x1b]0;title\x07 \x9b31m \u202e here\n\nnext line"
    assert failures.tell(Told(hostile), debug=False) == 4
    said = capsys.readouterr().err
    assert said == "Error: no ?]0;title? ?31m ? here\n\nnext line\n"
