"""What stands in a worker's data directory, read once, for all checks.

Read without links and whatever the modes are, since lax modes are a finding of their own; damage is
kept as a sentence. Known limit: a file that changes while the checks run is seen as it was.
"""

import dataclasses
import os
import pathlib
import stat

from runtime_kit import private_files
from wire_protocol import trust
from worker_agent.identity import own
from worker_agent.settings import agent_file, documents, join_file, paths, trust_file


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One machine's files."""

    where: paths.Paths
    uid: int
    gid: int
    agent: agent_file.AgentFile | None
    join: join_file.JoinFile | None
    held: trust.Held | None
    identity: own.Found
    faults: tuple[str, ...]  # damaged files, in words

    @property
    def has_joined(self) -> bool:
        """Whether everything that a join leaves is there and can be read."""
        return self.agent is not None and self.join is not None and self.held is not None


def look(where: paths.Paths) -> Seen:
    """Reads everything; raises `OSError` only where the folder itself cannot be seen."""
    info = where.folder.stat()
    faults: list[str] = []
    agent = join = held = None
    try:
        agent = agent_file.read(where.agent, reader=read)
    except documents.Damaged as error:
        faults.append(str(error))
    try:
        join = join_file.read(where.join, reader=read)
    except documents.Damaged as error:
        faults.append(str(error))
    try:
        held = trust_file.read(where.trust, reader=read)
    except documents.Damaged as error:
        faults.append(str(error))
    return Seen(
        where=where,
        uid=info.st_uid,
        gid=info.st_gid,
        agent=agent,
        join=join,
        held=held,
        identity=own.look(where, reader=read),
        faults=tuple(faults),
    )


def read(path: pathlib.Path, *, max_bytes: int) -> bytes:
    """A file's content whatever its mode is; never through a link, and never waiting."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(0, "it is no file")
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise private_files.FileTooLarge(f"{path} is larger than {max_bytes} bytes.")
    return content
