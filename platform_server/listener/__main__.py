"""The command line of the listener process; the host and its unit are the only ones to type it.

Exit codes: 0 told to stop, 1 could not start.
"""

import argparse
import os
import sys
from pathlib import Path

from platform_server.edge import arguments as edge_arguments
from platform_server.edge import notes
from platform_server.edge import process as edge_process
from platform_server.listener import forwarded, process
from runtime_kit.http1 import limits

_STANDARD = limits.Limits()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m platform_server.listener",
        fromfile_prefix_chars="@",  # a unit has its words in a credential, one a line
    )
    edge_arguments.add_to(parser)
    add = parser.add_argument
    add("--engine-socket", type=Path, required=True)
    add("--trusted-proxy", action="append", default=[], metavar="CIDR")
    add("--max-body-bytes", type=int, default=_STANDARD.body_bytes)
    add("--max-in-work", type=int, default=_STANDARD.in_work)
    add("--engine-wait-s", type=float, default=10.0, help="for an engine that is away")
    return parser


def main(arguments: list[str]) -> int:
    """Serve; return the exit code."""
    given = _parser().parse_args(arguments)
    notes.configure(level=given.log_level, form=given.log_format, process="listener")
    try:
        process.run(
            process.Settings(
                life=edge_arguments.settings_of(given, environment=os.environ),
                engine_socket=given.engine_socket,
                proxies=forwarded.parse_networks(given.trusted_proxy),
                limits=limits.Limits(
                    body_bytes=given.max_body_bytes,
                    in_work=given.max_in_work,
                    sockets=given.max_sockets,
                    # Longer than the wait for the engine, which answers 503 by itself.
                    work_s=given.engine_wait_s + 2.0,
                ),
                engine_wait_s=given.engine_wait_s,
            )
        )
    except (edge_process.CannotStart, ValueError) as error:
        notes.write("Could not start", level="error", reason=str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
