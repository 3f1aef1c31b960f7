"""Starts the root helper: `python -I -m root_helper --prefix DIR`, by its socket unit or at boot.

Started by the release's own path and never by the link to it, since the link changes under it.
"""

import asyncio
import logging
import os
import pathlib
import pwd
import signal
import sys

from installer import layout as layout_kit
from installer import receipt as receipt_kit
from installer import waiting
from root_helper import changing, service
from root_helper import mesh as mesh_kit
from root_helper import places as places_kit
from runtime_kit import clock as clock_kit
from runtime_kit import service_manager
from wire_protocol import problems

_USAGE = "usage: python -I -m root_helper [--prefix DIR]"
SOCKET_NAME = "helper"  # FileDescriptorName of enlist-helper.socket


class CannotStart(Exception):
    """The helper cannot serve on this machine; the message says what helps."""


def main(arguments: list[str]) -> int:
    """Serves; returns the exit code."""
    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.INFO, stream=sys.stderr)
    if len(arguments) not in (0, 2) or (arguments and arguments[0] != "--prefix"):
        sys.stderr.write(f"{_USAGE}\n")
        return problems.Exit.INVALID
    prefix = pathlib.Path(arguments[1]) if arguments else layout_kit.DEFAULT_PREFIX
    # At each step the disk is such that the next start goes on: nothing is waited for at the end.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    try:
        asyncio.run(_serve(places_of(prefix)))
    except CannotStart as fault:
        sys.stderr.write(f"Error: {fault}\n")
        return problems.Exit.NEEDS_OPERATOR
    except changing.CutOff as fault:
        sys.stderr.write(f"Error: {fault}\n")
        return problems.Exit.TEMPORARY
    return problems.Exit.DONE


def places_of(prefix: pathlib.Path) -> places_kit.Places:
    """The places of the worker installed below this prefix; raises `CannotStart`."""
    plain = layout_kit.system(layout_kit.Role.WORKER, prefix=prefix)
    try:
        receipt = receipt_kit.find(plain.receipt)
    except receipt_kit.Unreadable as error:
        raise CannotStart(f"{error} Run the installer again.") from error
    layout = plain
    if receipt is not None:
        layout = receipt_kit.layout_of(receipt, system=True, environment={})
    return places_kit.Places(layout=layout, folder=layout_kit.HELPER_FOLDER)


async def _serve(places: places_kit.Places) -> None:
    manager = service_manager.of(os.environ)
    sockets = service_manager.take_sockets(os.environ).get(SOCKET_NAME, ())
    if len(sockets) != 1:
        raise CannotStart("It is started by its socket: systemctl start enlist-helper.socket")
    account = places.layout.account or layout_kit.ACCOUNTS[layout_kit.Role.WORKER][0]
    try:
        uid = pwd.getpwnam(account).pw_uid
    except KeyError:
        raise CannotStart(f"There is no account {account}. Run the installer again.") from None
    change = changing.Changing(
        places=places, services=changing.Services(), waits=waiting.SystemWaits()
    )
    serving = service.Service(
        places=places,
        change=change,
        mesh=mesh_kit.Mesh(),
        clock=clock_kit.SystemClock(),
        peers=frozenset({0, uid}),
        limits=service.Limits(),
    )
    manager.ready("Serves the Agent of this machine")
    await serving.run(sockets[0])
    manager.stopping("Nothing to do")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
