"""From an exception to one sentence on stderr and an exit code.

Any exception that carries `exit_code` chose its code itself: click's own, the SDK's, and those of
the commands of other packages. What nobody expected is a fault of ours: code 1, with a report id
whose report (a traceback, no values) lies in a private file. Not for: deciding about retries.
"""

import os
import traceback
from pathlib import Path

import click

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
        click.echo(f"Error: {error}", err=True)
        return int(code)
    return _fault_of_ours(error)


def _fault_of_ours(error: BaseException) -> int:
    report_id = os.urandom(6).hex()
    place = _write_report(report_id, error)
    where = f" The report is in {place}." if place else ""
    click.echo(
        f"Error: A fault of ours ({type(error).__name__}), report {report_id}.{where} "
        "Run the command again with --debug to see more.",
        err=True,
    )
    return OUR_FAULT


def _write_report(report_id: str, error: BaseException) -> Path | None:
    base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    folder = Path(base).expanduser() / "enlist" / "reports"
    place = folder / f"{report_id}.txt"
    # The frames alone: the message of an unforeseen exception may hold anything.
    text = "".join(traceback.format_tb(error.__traceback__)) + f"{type(error).__qualname__}\n"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(text)
    except OSError:
        return None
    return place
