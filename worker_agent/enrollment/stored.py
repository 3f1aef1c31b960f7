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
from worker_agent.identity import own, states
from worker_agent.settings import agent_file, documents, join_file, paths, trust_file

_Content = TypeVar("_Content")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """The three files of a join, each None where it is missing or damaged, and the identity."""

    agent: agent_file.AgentFile | None = None
    join: join_file.JoinFile | None = None
    held: trust.Held | None = None
    has_identity: bool = False
    faults: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether the machine has joined and nothing is missing."""
        files = (self.agent, self.join, self.held)
        return self.has_identity and all(one is not None for one in files)


def read(where: paths.Paths) -> Stored:
    """Reads the three files and looks at the identity; what is damaged is told in `faults`."""
    faults: list[str] = []
    found = own.look(where)
    agent = _read(agent_file.read, where.agent, faults=faults)
    join = _read(join_file.read, where.join, faults=faults)
    held = _read(trust_file.read, where.trust, faults=faults)
    return Stored(
        agent=agent,
        join=join,
        held=held,
        has_identity=found.state is states.State.CERTIFIED,
        faults=tuple(faults),
    )


def _read(
    reader: Callable[[pathlib.Path], _Content | None], path: pathlib.Path, *, faults: list[str]
) -> _Content | None:
    try:
        return reader(path)
    except documents.Damaged as error:
        faults.append(str(error))
        return None
