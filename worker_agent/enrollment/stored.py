"""What an earlier join left on this machine, read without changing anything.

A file that is there but damaged counts as missing, with the fault kept for a warning: the same
command with the same token writes it again. What can be read still binds the machine to its
Platform and node: it has joined where `agent.json` stands, whether or not that can be read.
"""

import dataclasses
import pathlib
from typing import Protocol, TypeVar

from runtime_kit import private_files
from wire_protocol import trust
from worker_agent.identity import own, states
from worker_agent.settings import agent_file, documents, join_file, paths, trust_file

_Content_co = TypeVar("_Content_co", covariant=True)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """The three files of a join, each None where it is missing or damaged, and the identity."""

    agent: agent_file.AgentFile | None = None
    agent_is_damaged: bool = False
    join: join_file.JoinFile | None = None
    held: trust.Held | None = None
    has_identity: bool = False
    faults: tuple[str, ...] = ()

    @property
    def has_joined(self) -> bool:
        """Whether the last file of a join stands; before that nothing binds the machine."""
        return self.agent is not None or self.agent_is_damaged

    @property
    def is_whole(self) -> bool:
        """Whether the machine has joined and nothing is missing."""
        files = (self.agent, self.join, self.held)
        return self.has_identity and all(one is not None for one in files)


class _Read(Protocol[_Content_co]):
    """Reads one of the files; raises `Damaged`."""

    def __call__(
        self, path: pathlib.Path, *, reader: private_files.Reader
    ) -> _Content_co | None: ...


def read(
    where: paths.Paths, *, reader: private_files.Reader = private_files.read_private
) -> Stored:
    """Reads the three files and looks at the identity; what is damaged is told in `faults`.

    A check, which may not close lax files first, reads them as they are with `read_bounded`.
    """
    faults: list[str] = []
    found = own.look(where, reader=reader)
    agent = _read(agent_file.read, where.agent, reader=reader, faults=faults)
    agent_is_damaged = bool(faults)
    join = _read(join_file.read, where.join, reader=reader, faults=faults)
    held = _read(trust_file.read, where.trust, reader=reader, faults=faults)
    return Stored(
        agent=agent,
        agent_is_damaged=agent_is_damaged,
        join=join,
        held=held,
        has_identity=found.state is states.State.CERTIFIED,
        faults=tuple(faults),
    )


def _read(
    read_file: _Read[_Content_co],
    path: pathlib.Path,
    *,
    reader: private_files.Reader,
    faults: list[str],
) -> _Content_co | None:
    try:
        return read_file(path, reader=reader)
    except documents.Damaged as error:
        faults.append(str(error))
        return None
