"""From an exception to one sentence on stderr and an exit code.

Any exception that carries `exit_code` chose its code itself: click's own, the SDK's, and those of
the commands of other packages. What nobody expected is a fault of ours: code 1, with a report id
whose report (a traceback, no values) lies in a private file. Not for: deciding about retries.
"""

import os
import traceback

import click

from operator_cli import columns
from runtime_kit import reports

OUR_FAULT = 1
INTERRUPTED = 130  # 128 + SIGINT, as shells count


def tell(error: BaseException, *, debug: bool) -> int:
    """Prints what happened and what to do; returns the exit code."""
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, KeyboardInterrupt | click.Abort):
        click.echo("Interrupted.", err=True)
        return INTERRUPTED
    if debug and not isinstance(error, click.ClickException):
        traceback.print_exception(error)
    if isinstance(error, click.ClickException):
        error.show()
        return error.exit_code
    code = getattr(error, "exit_code", None)
    if isinstance(code, int):
        # What another side said may hold control characters, which would command the terminal.
        lines = [columns.clean(line) if line else "" for line in f"Error: {error}".splitlines()]
        click.echo("\n".join(lines), err=True)
        return int(code)
    report = reports.write(error, environment=os.environ)
    click.echo(f"Error: {report.sentence}", err=True)
    return OUR_FAULT
