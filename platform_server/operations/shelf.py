"""Which worker releases this Platform can give out: the folder of bundles, read as it is.

Each archive was verified when it was put there, and every machine verifies it again; here is read
only what it is. Known limit: the folder is this engine's own, so on PostgreSQL each engine offers
what its own machine has.
"""

import dataclasses
import pathlib
from collections.abc import Iterable, Sequence
from typing import Protocol

from platform_server.bundles import places
from platform_server.bundles import shelf as bundles
from wire_protocol import updates


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """One worker archive. `architecture` as the kernel names the processor's."""

    version: str
    architecture: str
    release: str
    sha256: str
    size: int
    made_at: str

    def to_update(self) -> updates.Update:
        """As an operation keeps it, without addresses."""
        return updates.Update(
            version=self.version,
            release=self.release,
            archive_sha256=self.sha256,
            size=self.size,
            urls=(),
        )


class Archives(Protocol):
    """What can be given out."""

    def list_workers(self) -> Sequence[Archive]:
        """Every worker archive, the newest first."""
        ...

    def urls(self, sha256: str) -> tuple[str, ...]:
        """Where the archive is served; none where it is not, or no bundle port is on."""
        ...


class Shelf:
    """The folder of this engine. `origin` is the bundle port's, None while that is off."""

    def __init__(self, folder: pathlib.Path, *, origin: str | None) -> None:
        self._bundles = bundles.Shelf(folder)
        self._origin = origin

    def list_workers(self) -> Sequence[Archive]:
        """Reads the folder; for a thread."""
        return [
            Archive(
                version=one.release.version,
                architecture=one.release.arch,
                release=one.release.id,
                sha256=one.sha256,
                size=one.size,
                made_at=one.release.made_at,
            )
            for one in self._bundles.all()
            if one.release.role == "worker"
        ]

    def installer_hash(self, sha256: str) -> str | None:
        """SHA-256 of the script that installs this archive; for a thread."""
        return self._bundles.installer_hash(sha256)

    def urls(self, sha256: str) -> tuple[str, ...]:
        """At the bundle port."""
        if self._origin is None or self._bundles.holds(sha256) is None:
            return ()
        return (f"{self._origin}{places.ARCHIVE_PREFIX}{sha256}",)


class Nothing:
    """For an engine without a folder of bundles."""

    def list_workers(self) -> Sequence[Archive]:
        """None."""
        return ()

    def urls(self, sha256: str) -> tuple[str, ...]:  # noqa: ARG002 - the form of `Archives`
        """None."""
        return ()


def newest(
    archives: Iterable[Archive], *, architecture: str, version: str | None
) -> Archive | None:
    """The first that fits, of archives of which the newest stands first."""
    return next(
        (
            one
            for one in archives
            if one.architecture == architecture and version in (None, one.version)
        ),
        None,
    )
