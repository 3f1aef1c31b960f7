"""What an earlier join left on this machine, read without changing anything.

A file that is there but damaged counts as missing, with the fault kept for a warning: the same
command with the same token writes it again. What can be read still binds the machine to its
Platform and node.
"""

import dataclasses
import pathlib
from collections.abc import Callable
from typing import TypeVar

from wire_protocol import trust
from worker_agent.settings import agent_file, documents, join_file, paths, trust_file

_Content = TypeVar("_Content")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """The three files of a join, each None where it is missing or damaged."""

    agent: agent_file.AgentFile | None = None
    join: join_file.JoinFile | None = None
    held: trust.Held | None = None
    faults: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether the machine has joined and nothing is missing."""
        return self.agent is not None and self.join is not None and self.held is not None


def read(where: paths.Paths) -> Stored:
    """Reads the three files; what is damaged is told in `faults`."""
    faults: list[str] = []
    agent = _read(agent_file.read, where.agent, faults=faults)
    join = _read(join_file.read, where.join, faults=faults)
    held = _read(trust_file.read, where.trust, faults=faults)
    return Stored(agent=agent, join=join, held=held, faults=tuple(faults))


def _read(
    reader: Callable[[pathlib.Path], _Content | None], path: pathlib.Path, *, faults: list[str]
) -> _Content | None:
    try:
        return reader(path)
    except documents.Damaged as error:
        faults.append(str(error))
        return None
