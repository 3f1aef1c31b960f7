"""What of a checkout goes into an archive: the files git knows, their commit, and its time.

The time of the commit stands for the time of building, so that the same source gives the same
bytes on every machine. Files that are changed or new beside the commit are built as they are, and
the release says so (`+changes`); `scripts/release` refuses that.
Known limit: needs git, and a checkout with at least one commit.
"""

import dataclasses
import datetime
import os
import pathlib
import re
import stat
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from installer import release as release_format

# The top folders of an archive's code. The builder itself stays in the checkout.
_SHARED: Final = (
    "wire_protocol",
    "runtime_kit",
    "worker_agent",
    "operator_cli",
    "enlist",
    "installer",
    "root_helper",
)
PACKAGES: Final[dict[release_format.Role, tuple[str, ...]]] = {
    "worker": _SHARED,
    "platform": (*_SHARED, "platform_server", "provisioning"),
}
_NOT_SHIPPED: Final = ("installer/build/", "installer/install.sh")
# What a package is made of; anything else in it was forgotten there.
_SHIPPED_ENDINGS: Final = (".py", ".sql", ".toml", "py.typed")
_UNIT_ENDINGS: Final = (".service", ".socket", ".path", ".timer", ".target")
_MOST_FILE_BYTES: Final = 4 * 1024 * 1024
_GIT_SECONDS: Final = 60

VERSION_FILE: Final = "wire_protocol/product.py"
INSTALL_SH: Final = "installer/install.sh"
_VERSION = re.compile(r'^VERSION = "([^"\n]+)"$', re.MULTILINE)


class SourceError(Exception):
    """The checkout cannot be built from; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A checkout, as it is at this moment."""

    root: pathlib.Path
    files: tuple[str, ...]
    commit: str
    changed: bool
    made_at: datetime.datetime
    replaced: Mapping[str, bytes] = field(default_factory=dict)

    def replacing(self, files: Mapping[str, bytes]) -> Self:
        """The same source with these files in place of its own, or added: a trial of the next."""
        return dataclasses.replace(
            self,
            files=tuple(sorted({*self.files, *files})),
            changed=True,
            replaced={**self.replaced, **files},
        )

    @property
    def version(self) -> str:
        """The product's version, read and not imported: the checkout may be another one."""
        match = _VERSION.search(self.read(VERSION_FILE).decode())
        if match is None:
            raise SourceError(f"{VERSION_FILE} states no VERSION.")
        return match[1]

    def read(self, name: str) -> bytes:
        """A file's bytes."""
        if name in self.replaced:
            return self.replaced[name]
        path = self.root / name
        try:
            if name not in self.files or not stat.S_ISREG(path.lstat().st_mode):
                raise SourceError(f"There is no file {name} in {self.root}.")
            with path.open("rb") as file:
                data = file.read(_MOST_FILE_BYTES + 1)
        except OSError as error:
            raise SourceError(f"{path} cannot be read: {error.strerror}.") from error
        if len(data) > _MOST_FILE_BYTES:
            raise SourceError(f"{name} is larger than {_MOST_FILE_BYTES} bytes: what is it?")
        return data

    def code(self, role: release_format.Role) -> list[str]:
        """The files of the role's packages, sorted."""
        return sorted(
            name
            for name in self.files
            if name.partition("/")[0] in PACKAGES[role]
            and name.endswith(_SHIPPED_ENDINGS)
            and not name.startswith(_NOT_SHIPPED)
        )

    def units(self, role: release_format.Role) -> list[str]:
        """The units of the role, sorted."""
        return sorted(
            name
            for name in self.files
            if name.startswith(f"systemd/{role}/") and name.endswith(_UNIT_ENDINGS)
        )


def read(root: pathlib.Path) -> Source:
    """Look at a checkout.

    Raises:
        SourceError: it is no checkout, or has no commit yet.
    """
    listed = _git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    # A file that git knows and that has been deleted here is no part of this source.
    files = (name for name in set(listed.split("\0")) if name and (root / name).is_file())
    commit = _git(root, "rev-parse", "--verify", "HEAD").strip()
    seconds = int(_git(root, "show", "--no-patch", "--format=%ct", "HEAD"))
    return Source(
        root=root,
        files=tuple(sorted(files)),
        commit=commit,
        changed=bool(_git(root, "status", "--porcelain", "--untracked-files=normal").strip()),
        made_at=datetime.datetime.fromtimestamp(seconds, tz=datetime.UTC),
    )


def _git(root: pathlib.Path, *arguments: str) -> str:
    # In a checkout of another account's git refuses and says what helps: that account's
    # .git/config could name programs, and they would run as whoever holds the release key.
    command = ["git", "-C", os.fspath(root), *arguments]
    try:
        done = subprocess.run(
            command,
            check=True,
            capture_output=True,
            timeout=_GIT_SECONDS,
        )
    except FileNotFoundError:
        raise SourceError("Building needs git: apt-get install git") from None
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip()
        raise SourceError(f"{root} is no checkout that can be built from: {said}") from None
    except subprocess.TimeoutExpired:
        raise SourceError(f"git did not answer within {_GIT_SECONDS} s in {root}.") from None
    return done.stdout.decode()
