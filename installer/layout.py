"""Where an installed machine keeps what: every path and account of an installation is named here.

For: the installer, its removal, the root helper and the checkup, so that all mean the same places.
`system` is an installation by root, `rootless` one by a plain user below a folder of his own, with
neither account nor unit. Not for: what stands inside the data directory, which belongs to the
program that runs there.
"""

import dataclasses
import enum
import pathlib
from collections.abc import Mapping

DEFAULT_PREFIX = pathlib.Path("/opt/enlist")
DEFAULT_DATA = pathlib.Path("/var/lib/enlist")
UNITS_FOLDER = pathlib.Path("/etc/systemd/system")
SYSTEM_LINK = pathlib.Path("/usr/local/bin/enlist")
HELPER_FOLDER = DEFAULT_DATA / "helper"
MACHINES_FOLDER = DEFAULT_DATA / "machines"  # StateDirectory of enlist-machines.service
IMAGES_FOLDER = pathlib.Path("/var/cache/enlist/images")  # its CacheDirectory


class Role(enum.StrEnum):
    """What a machine is installed as; one machine may be both."""

    WORKER = "worker"
    PLATFORM = "platform"


ACCOUNTS: Mapping[Role, tuple[str, ...]] = {
    Role.WORKER: ("enlist-worker",),
    Role.PLATFORM: ("enlist-platform", "enlist-edge"),
}
"""The accounts of a role; the first owns the data directory."""

SERVICES: Mapping[Role, tuple[str, ...]] = {
    Role.WORKER: ("enlist-agent.service",),
    Role.PLATFORM: (
        "enlist-platform.service",
        "enlist-listener.service",
        "enlist-bundles.service",
    ),
}
"""What is restarted and watched when the release changes, in this order."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The places of one role on one machine."""

    role: Role
    prefix: pathlib.Path
    data_dir: pathlib.Path
    link: pathlib.Path
    units: pathlib.Path | None  # None: rootless, no units
    helper: pathlib.Path | None  # the root helper's own folder
    account: str | None  # None: rootless, whoever installs runs it
    machines: pathlib.Path | None = None  # local machines, of a Platform of root's
    images: pathlib.Path | None = None  # what they are made from

    @property
    def root(self) -> pathlib.Path:
        """The folder of this role below the prefix."""
        return self.prefix / self.role

    @property
    def releases(self) -> pathlib.Path:
        """The releases, side by side."""
        return self.root / "releases"

    @property
    def current(self) -> pathlib.Path:
        """The link to the release in use."""
        return self.root / "current"

    @property
    def previous(self) -> pathlib.Path:
        """The link to the release before, kept for going back."""
        return self.root / "previous"

    @property
    def receipt(self) -> pathlib.Path:
        """What was made here; update and removal read it."""
        return self.root / "receipt.json"

    @property
    def release_key(self) -> pathlib.Path:
        """The Ed25519 key, PEM, that signs every release for this machine."""
        return self.root / "release.pub"

    @property
    def uninstaller(self) -> pathlib.Path:
        """A copy of the installer's code, so that removal works when no release does."""
        return self.root / "uninstaller"

    @property
    def command(self) -> pathlib.Path:
        """The `enlist` of the release in use."""
        return self.current / "bin" / "enlist"

    @property
    def accounts(self) -> tuple[str, ...]:
        """The accounts this role needs."""
        return ACCOUNTS[self.role] if self.account else ()

    def release(self, release_id: str) -> pathlib.Path:
        """The folder of one release."""
        return self.releases / release_id


def system(
    role: Role, *, prefix: pathlib.Path = DEFAULT_PREFIX, data_dir: pathlib.Path | None = None
) -> Layout:
    """The places of an installation by root."""
    return Layout(
        role=role,
        prefix=prefix,
        data_dir=data_dir or DEFAULT_DATA / role,
        link=SYSTEM_LINK,
        units=UNITS_FOLDER,
        helper=HELPER_FOLDER if role is Role.WORKER else None,
        account=ACCOUNTS[role][0],
        machines=MACHINES_FOLDER if role is Role.PLATFORM else None,
        images=IMAGES_FOLDER if role is Role.PLATFORM else None,
    )


def rootless(
    role: Role,
    *,
    prefix: pathlib.Path,
    data_dir: pathlib.Path | None = None,
    environment: Mapping[str, str],
) -> Layout:
    """The places of an installation by a plain user; without a home all stands below the prefix."""
    home = environment.get("HOME", "")
    at_home = home.startswith("/") and home.strip("/") != ""
    state = environment.get("XDG_STATE_HOME", "")
    if state.startswith("/"):  # the XDG specification says to ignore a relative path
        states = pathlib.Path(state) / "enlist"
    elif at_home:
        states = pathlib.Path(home) / ".local" / "state" / "enlist"
    else:
        states = prefix / "data"
    folder = pathlib.Path(home) / ".local" / "bin" if at_home else prefix / "bin"
    return Layout(
        role=role,
        prefix=prefix,
        data_dir=data_dir or states / role,
        link=folder / "enlist",
        units=None,
        helper=None,
        account=None,
    )
