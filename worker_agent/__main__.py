"""Starts the Agent without the command line's libraries: `python -m worker_agent --data-dir DIR`.

`enlist agent` becomes this program, so that a process which runs for years carries neither click
nor anything else that only a person's command needs.
"""

import asyncio
import os
import random
import sys
import traceback

from runtime_kit import clock as clock_kit
from runtime_kit import reports
from wire_protocol import problems
from worker_agent.app import agent, logs
from worker_agent.settings import failures, paths

_USAGE = "usage: python -m worker_agent [--debug] --data-dir DIR"
_INTERRUPTED = 130  # 128 + SIGINT, as shells count; before the Agent listens to signals itself


def main(arguments: list[str]) -> int:
    """Runs the Agent; returns the exit code."""
    debug = "--debug" in arguments
    rest = [argument for argument in arguments if argument != "--debug"]
    if len(rest) != 2 or rest[0] != "--data-dir":
        sys.stderr.write(f"{_USAGE}\n")
        return failures.Misuse.exit_code
    logs.set_up(debug=debug)
    try:
        where = paths.resolve(rest[1], environment=os.environ, uid=os.geteuid())
        asyncio.run(agent.run(where, clock=clock_kit.SystemClock(), chance=random.SystemRandom()))
    except failures.Failure as failure:
        sys.stderr.write(f"Error: {failure}\n")
        return failure.exit_code
    except KeyboardInterrupt:
        return _INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last handler: each one ends in an exit code
        if debug:
            traceback.print_exception(error)
        report = reports.write(error, environment=os.environ)
        sys.stderr.write(f"Error: {report.sentence}\n")
        return problems.Exit.OUR_FAULT
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
