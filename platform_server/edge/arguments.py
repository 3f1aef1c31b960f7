"""The part of the command line that every process at the edge has.

A host hands sockets down by number (`--fd`) and says who it is (`--child-of`); a service manager
passes them by its own convention (LISTEN_FDS), and the process outlives everybody but it.
"""

import argparse
import socket
from collections.abc import MutableMapping
from pathlib import Path
from typing import Final

from platform_server.edge import notes, process
from runtime_kit import service_manager, small_packets
from runtime_kit.http1 import limits

_STANDARD: Final = limits.Limits()


def add_to(parser: argparse.ArgumentParser, *, sockets: int = _STANDARD.sockets) -> None:
    """Adds them; `sockets` is how many the port holds unless told otherwise."""
    add = parser.add_argument
    add("--fd", type=int, action="append", default=[], help="a listening socket, inherited")
    add("--child-of", type=int, metavar="PID", help="end when that parent does")
    add("--tls-file", type=Path, required=True, help="private key and certificate chain, PEM")
    add("--max-sockets", type=int, default=sockets)
    add("--drain-s", type=float, default=5.0, help="for requests in work at SIGTERM")
    add("--log-level", choices=notes.LEVELS, default="info")
    add("--log-format", choices=notes.FORMATS, default="auto")
    add("--start-s", type=float, default=30.0, help="for the TLS file to appear")


def settings_of(
    given: argparse.Namespace, *, environment: MutableMapping[str, str]
) -> process.Settings:
    """What they say of the process's life; takes the sockets.

    Raises:
        process.CannotStart: No socket was handed over.
    """
    try:
        passed = service_manager.take_sockets(environment)
        manager = service_manager.of(environment)
    except service_manager.BadSurroundings as error:
        raise process.CannotStart(str(error)) from error
    from_manager = [one for several in passed.values() for one in several]
    for one in from_manager:
        small_packets.ensure(one)  # a manager knows nothing of this; a host has done it
    sockets = [*(socket.socket(fileno=fd) for fd in given.fd), *from_manager]
    if not sockets:
        raise process.CannotStart("No socket was handed over, by --fd or by a service manager")
    return process.Settings(
        sockets=sockets,
        parent=given.child_of,
        manager=manager,
        tls_file=given.tls_file,
        drain_s=given.drain_s,
        start_s=given.start_s,
    )
