"""What one bundle server serves: files, behind the limits of the port."""

import dataclasses
import os
import stat
from pathlib import Path

from platform_server.bundles import door
from platform_server.edge import process as edge_process
from runtime_kit.http1 import limits, server

_SPARE_DESCRIPTORS = 128


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the command line said."""

    life: edge_process.Settings
    folder: Path
    folder_of_another: bool
    """Whether a folder of root's or of this account's is refused: then it was put in the place of
    the Platform's by a link."""
    limits: limits.Limits


def run(settings: Settings) -> None:
    """Serve until told to stop.

    Raises:
        edge_process.CannotStart: Nothing was served.
    """
    if settings.folder_of_another:
        check_owner(settings.folder)

    def build(given: edge_process.Given) -> edge_process.Part:
        serving = door.Door(settings.folder, tally=given.tally)
        return edge_process.Part(
            serving=server.Server(
                serving.answer,
                limits=settings.limits,
                tls=given.tls,
                before_body=serving.before_body,
                refusal=serving.refusal,
                handshake_failed=given.handshake_failed,
            )
        )

    edge_process.run(
        settings.life,
        build=build,
        # each socket may have a file open
        descriptors_needed=2 * settings.limits.sockets + _SPARE_DESCRIPTORS,
    )


def check_owner(folder: Path) -> None:
    """Raises `edge_process.CannotStart` unless it is a folder of neither root's nor our own."""
    try:
        found = folder.stat(follow_symlinks=False)
    except OSError as error:
        raise edge_process.CannotStart(f"{folder} cannot be looked at: {error}") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid in (0, os.geteuid()):
        raise edge_process.CannotStart(f"{folder} is not the Platform's folder of bundles")
