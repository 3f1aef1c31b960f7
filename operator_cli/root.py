"""The root command over a table, and how its end becomes an exit code."""

import os
import sys
from collections.abc import Mapping, Sequence

import click

from operator_cli import global_options, lazy

_USUAL_WIDTH, _NARROWEST, _WIDEST = 80, 50, 100

PIPE_CLOSED = 141  # 128 + SIGPIPE, as shells count: the reader left, `enlist nodes list | head`

_TEXT = """Turn machines into trusted nodes of your platform.

Examples:
  enlist serve --enrollment-port
  enlist nodes enroll-token web-1
  enlist nodes list -o json
"""


def build(table: Mapping[str, tuple[str, str]]) -> click.Group:
    """The root command with every global option."""
    root = lazy.LazyGroup("enlist", table=table, text=_TEXT)
    root.context_settings["terminal_width"] = _width()
    global_options.attach(root, hidden=False)
    return root


def run(arguments: Sequence[str], *, table: Mapping[str, tuple[str, str]]) -> int:
    """Runs one command and returns its exit code; prints its failure, if any, to stderr."""
    options = global_options.Options()
    try:
        answer = build(table).main(
            args=list(arguments), prog_name="enlist", standalone_mode=False, obj=options
        )
    except SystemExit as leaving:
        # What click leaves in place of stdout after EPIPE; it ends with 1, our code for faults.
        if type(sys.stdout).__name__.endswith("PacifyFlushWrapper"):
            return PIPE_CLOSED
        code = leaving.code
        return code if isinstance(code, int) else int(code is not None)
    except BaseException as error:  # noqa: BLE001 - each one ends in an exit code
        from operator_cli import failures  # noqa: PLC0415 - only a failure pays for it

        return failures.tell(error, debug=options.debug)
    return answer if isinstance(answer, int) else 0


def _width() -> int:
    """Columns for help texts; click asks shutil, whose loading is a twentieth of the start."""
    try:
        columns = int(os.environ.get("COLUMNS") or os.get_terminal_size().columns)
    except (OSError, ValueError):
        columns = _USUAL_WIDTH
    return max(_NARROWEST, min(columns, _WIDEST)) - 2
