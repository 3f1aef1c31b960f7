"""What one bundle server serves: files, behind the limits of the port."""

import dataclasses
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
    limits: limits.Limits


def run(settings: Settings) -> None:
    """Serve until told to stop.

    Raises:
        edge_process.CannotStart: Nothing was served.
    """

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
