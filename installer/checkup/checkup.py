"""All that is looked at of one installed role, in the order in which it is told.

`of` gives the questions, each with its limit, and what may be mended; running them, telling them
and packing them is the command line's part.
"""

import asyncio
import functools
import json
import os
import pathlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

from installer import layout as layout_kit
from installer.checkup import (
    account,
    firewalls,
    installed,
    interpreter,
    joining,
    owners,
    records,
    releases,
    root_socket,
    services,
    sockets,
    unit_files,
)
from installer.checkup import around as around_kit
from installer.checkup import seen as seen_kit
from runtime_kit import file_rules, mends, side_by_side
from wire_protocol import findings

_SECONDS = 8.0  # all files hashed on a slow disk; a program has half of it

Found = tuple[findings.Finding, ...]
Job = side_by_side.Job[Found]
_Look = Callable[[seen_kit.Seen], Found]

_QUESTIONS: tuple[tuple[str, _Look], ...] = (
    ("under-way", releases.under_way),
    ("receipt", records.receipt),
    ("release", releases.release),
    ("previous", releases.previous),
    ("left-over", releases.left_over),
    ("python", interpreter.python),
    ("hashes", installed.hashes),
    ("command", records.command),
    ("account", account.accounts),
    ("owners", owners.owners),
    ("units", unit_files.files),
    ("unit", unit_files.states),
    ("root-helper", root_socket.socket),
    ("ports", sockets.agree),
    ("joined", joining.joined),
    ("firewall", firewalls.look),
)


def questions() -> list[str]:
    """The names of all that is asked, in order."""
    return [name for name, _ in _QUESTIONS]


class Checkup:
    """One role of an installation, looked at once."""

    def __init__(self, seen: seen_kit.Seen) -> None:
        self._seen = seen

    @property
    def place(self) -> str:
        """The name before its findings: a machine may be both."""
        return f"installation.{self._seen.role}"

    @property
    def title(self) -> str:
        """Which installation this is, for people."""
        return f"{self._seen.role} installed in {self._seen.layout.root}"

    @property
    def data_dir(self) -> pathlib.Path:
        """Where the program that is installed keeps its data."""
        return self._seen.layout.data_dir

    @property
    def role(self) -> str:
        """`worker` or `platform`."""
        return self._seen.role

    @property
    def start_command(self) -> str | None:
        """How the program is started here, where it is a service."""
        if not self._seen.is_system:
            return None
        return f"sudo systemctl start {layout_kit.SERVICES[self._seen.layout.role][0]}"

    def jobs(self) -> Sequence[Job]:
        """Every question; a file system may hang as a network does."""
        self._seen = seen_kit.look_again(self._seen)
        return [
            side_by_side.Job(
                name=name,
                work=functools.partial(asyncio.to_thread, look, self._seen),
                seconds=_SECONDS,
            )
            for name, look in _QUESTIONS
        ]

    def look(self) -> Found:
        """The same one after the other, where there is no event loop to ask at once."""
        self._seen = seen_kit.look_again(self._seen)
        return tuple(finding for _, look in _QUESTIONS for finding in look(self._seen))

    def mends(self, found: Sequence[findings.Finding], /) -> Sequence[mends.Mend]:
        """What may be put right by itself: the release, then who may read it, then what runs it."""
        seen = self._seen
        if not seen.may_mend:
            return []
        return [
            *releases.mends_of(seen),
            *records.mends_of(seen),
            *owners.mends_of(seen),
            *unit_files.mends_of(seen, found),
        ]

    def parts(self) -> Iterator[tuple[str, bytes]]:
        """What a support archive holds of it: all of it is public."""
        seen = self._seen
        if seen.receipt is not None:
            yield "receipt.json", json.dumps(seen.receipt.to_document(), indent=2).encode()
        if seen.release is not None:
            yield "release.json", seen.release.to_bytes()
        yield "files.txt", _outline(seen).encode()
        if seen.layout.units is not None and services.has_systemd(seen.around):
            yield "units.txt", _states(seen).encode()


def find(
    *,
    running: pathlib.Path,
    environment: Mapping[str, str],
    around: around_kit.Around | None = None,
) -> list[Checkup]:
    """The checkups of what is installed here; raises `PermissionError` where it may not look."""
    surroundings = around or around_kit.Around()
    prefixes = seen_kit.prefixes_of(surroundings, running=running, environment=environment)
    seen = seen_kit.find(surroundings, prefixes=prefixes, environment=environment)
    return [Checkup(one) for one in seen]


def here() -> list[Checkup]:
    """The checkups of this machine, as this program was started."""
    return find(running=pathlib.Path(sys.prefix), environment=os.environ)


def _outline(seen: seen_kit.Seen) -> str:
    """The entries of the role's folder and of each release's, not the thousands below."""
    folders = (seen.here.root, seen.here.releases, seen.release_folder)
    return "\n".join(
        file_rules.listing(folder, flat=True)
        for folder in folders
        if folder is not None and folder.is_dir()
    )


def _states(seen: seen_kit.Seen) -> str:
    names = [unit.name for unit in unit_files.of_release(seen)]
    try:
        return services.listing(services.ask(seen.around, names))
    except around_kit.CannotLook as error:
        return f"{error}\n"
