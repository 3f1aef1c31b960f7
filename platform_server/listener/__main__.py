"""The command line of the listener process; the host process is the only one to type it.

Exit codes: 0 told to stop, 1 could not start.
"""

import argparse
import sys
from pathlib import Path

from platform_server.listener import forwarded, notes, process
from runtime_kit.http1 import limits

_STANDARD = limits.Limits()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m platform_server.listener")
    add = parser.add_argument
    add("--fd", type=int, action="append", required=True, help="a listening socket, inherited")
    add("--tls-file", type=Path, required=True, help="private key and certificate chain, PEM")
    add("--engine-socket", type=Path, required=True)
    add("--trusted-proxy", action="append", default=[], metavar="CIDR")
    add("--max-body-bytes", type=int, default=_STANDARD.body_bytes)
    add("--max-in-work", type=int, default=_STANDARD.in_work)
    add("--max-sockets", type=int, default=_STANDARD.sockets)
    add("--engine-wait-s", type=float, default=10.0, help="for an engine that is away")
    add("--drain-s", type=float, default=5.0, help="for requests in work at SIGTERM")
    add("--log-level", choices=notes.LEVELS, default="info")
    add("--log-format", choices=notes.FORMATS, default="auto")
    add("--start-s", type=float, default=30.0, help="for the TLS file to appear")
    return parser


def main(arguments: list[str]) -> int:
    """Serve; return the exit code."""
    given = _parser().parse_args(arguments)
    notes.configure(level=given.log_level, form=given.log_format)
    try:
        process.run(
            process.Settings(
                fds=given.fd,
                tls_file=given.tls_file,
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
                drain_s=given.drain_s,
                start_s=given.start_s,
            )
        )
    except (process.CannotStart, ValueError) as error:
        notes.write("Could not start", level="error", reason=str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
