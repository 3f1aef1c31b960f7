"""`enlist doctor`: what is wrong on this machine, and the command that mends it.

Finds out itself what is installed here and whether a Platform, a worker or both keep their data
here, loads only what these need, and asks everything at once. Changes nothing without `--fix`.
"""

import click

from operator_cli import global_options


@click.command(cls=global_options.Command)
@click.option("--fix", is_flag=True, help="Put right what is safe: modes, owners, what is due.")
@click.option("--bundle", metavar="FILE", help="Write an archive for support, without secrets.")
@click.option("--verbose", "-v", is_flag=True, help="Also what was skipped and what was measured.")
def doctor(*, fix: bool, bundle: str | None, verbose: bool) -> int:
    """Say what is wrong on this machine, and what mends it.

    Looks at what is installed here, and at the Platform or the worker whose data lies here, or at
    both. Changes nothing without --fix. The exit code is 0 when nothing failed, 6 when something
    needs you, 75 when it may pass by itself.

    Examples:
      enlist doctor
      enlist doctor --fix --check
      enlist doctor --bundle support.tar.gz
    """
    from operator_cli import checkup_run  # noqa: PLC0415 - only this command pays for all of it

    return checkup_run.run(fix=fix, bundle=bundle, verbose=verbose)
