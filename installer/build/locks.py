"""The lock files, as the builder needs them: every requirement with its pin and its hashes.

What the project needs to be built (setuptools) is locked with the rest and left out here: nothing
is built on a machine.
"""

import re
import tomllib
from dataclasses import dataclass
from typing import Final

from installer import release as release_format
from installer.build import sources

LOCKS: Final[dict[release_format.Role, str]] = {
    "worker": "requirements/base.lock",
    "platform": "requirements/platform.lock",
}
_PIN = re.compile(r"([A-Za-z0-9._-]+)==([^\s;]+) \\")
_HASH = re.compile(r"    --hash=sha256:([0-9a-f]{64})(?: \\)?")
_NAME = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """One locked requirement."""

    name: str  # in the normal form: lower case, with hyphens
    version: str
    hashes: frozenset[str]

    def to_text(self) -> str:
        """The requirement as pip reads it."""
        lines = (f"    --hash=sha256:{sha256}" for sha256 in sorted(self.hashes))
        return " \\\n".join((f"{self.name}=={self.version}", *lines)) + "\n"


def plain(name: str) -> str:
    """A project's name in its normal form."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins_for(source: sources.Source, role: release_format.Role) -> tuple[Pin, ...]:
    """What an archive of this role carries, sorted by name.

    Raises:
        SourceError: the lock has lines of another kind than `scripts/lock` writes today.
    """
    build = tomllib.loads(source.read("pyproject.toml").decode())["build-system"]["requires"]
    left_out = {plain(match[0]) for text in build if (match := _NAME.match(text))}
    pins = parse(source.read(LOCKS[role]).decode(), name=LOCKS[role])
    return tuple(pin for pin in pins if pin.name not in left_out)


def parse(text: str, *, name: str) -> list[Pin]:
    """All pins of a lock file, sorted by name."""
    found: dict[str, tuple[str, set[str]]] = {}
    current: set[str] | None = None
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if pin := _PIN.fullmatch(line):
            current = set()
            found[plain(pin[1])] = (pin[2], current)
        elif (sha256 := _HASH.fullmatch(line)) and current is not None:
            current.add(sha256[1])
        else:
            # A marker would have to be judged for a Python that is not this one.
            raise sources.SourceError(f"{name} has a line the builder cannot read: {line}")
    return [
        Pin(name=project, version=version, hashes=frozenset(hashes))
        for project, (version, hashes) in sorted(found.items())
    ]
