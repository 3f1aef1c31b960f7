"""`mesh.json`: the place that the Platform gave this node. Without the file it takes no part."""

import pathlib

from runtime_kit import private_files
from wire_protocol import mesh
from worker_agent.settings import documents


def read(
    path: pathlib.Path, *, reader: private_files.Reader = private_files.read_private
) -> mesh.Grant | None:
    """The place, or None; raises `Damaged`."""
    fields = documents.read(path, reader=reader)
    if fields is None:
        return None
    try:
        return mesh.parse_grant(fields)
    except ValueError as error:
        raise documents.Damaged(f"{path} is damaged: {error}") from error


def write(path: pathlib.Path, grant: mesh.Grant | None) -> None:
    """Replaces the file in one step, or removes it where there is no place."""
    if grant is None:
        path.unlink(missing_ok=True)
    else:
        documents.write(path, grant.to_wire())
