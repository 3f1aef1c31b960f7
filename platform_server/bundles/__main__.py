"""The command line of the bundle server; the host and its unit are the only ones to type it.

Exit codes: 0 told to stop, 1 could not start.
"""

import argparse
import os
import sys
from pathlib import Path

from platform_server.bundles import process
from platform_server.edge import arguments as edge_arguments
from platform_server.edge import notes
from platform_server.edge import process as edge_process
from runtime_kit.http1 import limits

_STANDARD = limits.Limits()
_PARTS = 8  # of the sockets, one address holds one


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m platform_server.bundles",
        fromfile_prefix_chars="@",  # a unit has its words in a credential, one a line
    )
    edge_arguments.add_to(parser, sockets=256)
    add = parser.add_argument
    add("--folder", type=Path, required=True, help="the folder that is served")
    add(
        "--folder-of-another",
        action="store_true",
        help="refuse a folder that is root's or this account's: it is not the Platform's",
    )
    add("--max-sockets-by-address", type=int, help="of one IPv4 address or IPv6 /64 (an eighth)")
    add("--least-bytes-s", type=int, default=16_384, help="a second, over a whole download")
    add("--least-after-s", type=float, default=_STANDARD.least_after_s, help="looked at from then")
    add("--stall-s", type=float, default=_STANDARD.stall_s, help="for a client that takes nothing")
    add("--transfer-s", type=float, default=_STANDARD.transfer_s, help="for one whole download")
    return parser


def main(arguments: list[str]) -> int:
    """Serve; return the exit code."""
    given = _parser().parse_args(arguments)
    notes.configure(level=given.log_level, form=given.log_format, process="bundles")
    try:
        process.run(
            process.Settings(
                life=edge_arguments.settings_of(given, environment=os.environ),
                folder=given.folder,
                folder_of_another=given.folder_of_another,
                limits=limits.Limits(
                    body_bytes=0,
                    sockets=given.max_sockets,
                    sockets_by_address=given.max_sockets_by_address
                    or max(1, given.max_sockets // _PARTS),
                    least_bytes_s=given.least_bytes_s,
                    least_after_s=given.least_after_s,
                    # What the kernel still holds of a download must get out before a close.
                    idle_s=given.stall_s,
                    close_s=given.stall_s / 2,
                    stall_s=given.stall_s,
                    transfer_s=given.transfer_s,
                ),
            )
        )
    except (edge_process.CannotStart, ValueError) as error:
        notes.write("Could not start", level="error", reason=str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
