"""`enlist worker update`: this machine runs the newest release that its Platform has.

Root alone can change what is installed, and root speaks with nobody here: the worker's account asks
the Platform and hands the archive over; root copies it, checks its signature by the release key
that this machine trusts from its first installation on, and gives it to the installer, which goes
back to the present release where the new one does not live.
"""

import hashlib
import os
import pathlib
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO, Final

import click

from operator_cli import columns, global_options, printing
from wire_protocol import problems, updates, versions

if TYPE_CHECKING:
    from installer import archive
    from operator_cli import installed

_MODULE: Final = "worker_agent.app.newest"
_MOST_LINE: Final = 512
_MOST_KEY: Final = 4096
_PIECE: Final = 1_048_576


class NotInstalled(click.ClickException):
    """The installer did not install this machine's worker, so it cannot update it either."""

    exit_code = int(problems.Exit.NEEDS_OPERATOR)


class Older(click.ClickException):
    """What the Platform has is older than what runs here."""

    exit_code = int(problems.Exit.CONFLICT)


class NotIt(click.ClickException):
    """What came is no release of Enlist, or it does not live on this machine."""

    exit_code = int(problems.Exit.REFUSED)


@click.command("update", cls=global_options.Command)
@click.option(
    "--from",
    "origin",
    metavar="URL",
    help="The Platform's bundle port.  [default: port 8446 of the Platform]",
)
def update(*, origin: str | None) -> None:
    """Update this machine to the newest release its Platform has.

    Needs root. The release is fetched by the pins that this machine holds, its signature is
    checked, and the Agent is restarted; where the new release does not live, the present one is
    started again (exit code 3). With --check it says what would happen.

    Examples:
      enlist worker update --check
      sudo enlist worker update
    """
    if os.geteuid() != 0:
        raise click.UsageError(
            "Updating changes the installed release and restarts the Agent's unit, which needs "
            "root: sudo enlist worker update"
        )
    from operator_cli import installed  # noqa: PLC0415 - only root pays for it

    options = global_options.current()
    here = installed.find(options)
    if here is None:
        raise NotInstalled(
            "There is no worker on this machine that the installer has installed. Install it: see "
            "install.sh --role worker"
        )
    sha256, name, version = _latest(here, origin=origin)
    if options.check:
        present = columns.clean(_present(here))
        sentence = f"Would fetch {columns.clean(name)} and run it in place of {present}."
        printing.show(
            {"check": True, "archive": name, "sha256": sha256, "version": version},
            lines=lambda: [f"{sentence} Nothing has been changed."],
        )
        return
    done = _updated(here, sha256=sha256, origin=origin)
    printing.show(done, lines=lambda: [f"This machine runs {columns.clean(done['release'])}."])


def _latest(here: "installed.Installed", *, origin: str | None) -> tuple[str, str, str]:
    """Hash, name and version of the newest archive."""
    from installer import release as releases  # noqa: PLC0415 - likewise
    from operator_cli import installed  # noqa: PLC0415 - likewise

    line = b"".join(
        installed.take_from(here, _module(here, "latest", origin=origin), most=_MOST_LINE)
    )
    try:
        sha256, name = releases.parse_latest(line)
        found = releases.name_of(name)
    except releases.BadRelease as error:
        raise NotIt(str(error)) from error
    if found is None or found[0] != "worker":
        raise NotIt("What the Platform names is no worker's archive.")
    version, present = found[1], _present(here)
    if versions.is_newer(updates.version_of_release(present), version):
        raise Older(f"This machine runs {present}, and the Platform's newest is {version}.")
    return sha256, name, version


def _updated(here: "installed.Installed", *, sha256: str, origin: str | None) -> dict[str, str]:
    from installer import archive as archives  # noqa: PLC0415
    from installer import (  # noqa: PLC0415 - as above
        changeover,
        install,
        tree,
        waiting,
    )
    from installer import progress as progress_kit  # noqa: PLC0415
    from installer import release as releases  # noqa: PLC0415
    from operator_cli import installed  # noqa: PLC0415

    layout = here.layout
    pieces = installed.take_from(
        here, _module(here, "fetch", sha256, origin=origin), most=updates.MOST_ARCHIVE_BYTES
    )
    try:
        with tempfile.TemporaryDirectory(dir=layout.root, prefix=".incoming-") as name:
            folder = pathlib.Path(name)
            with (folder / "archive.tar").open("xb+") as file:
                _copy(pieces, file, sha256=sha256)
                checked = archives.read(file, verify=_verifier(layout.release_key))
                _unpack(file, checked, folder=folder)
            outcome = install.install(
                install.Wish(
                    layout=layout,
                    source=install.Source.in_folder(folder),
                    release_key=layout.release_key.read_bytes(),
                ),
                progress=progress_kit.Progress(),
                waits=waiting.SystemWaits(),
            )
    except (releases.BadRelease, tree.BadPayload) as error:
        raise NotIt(str(error)) from error
    if outcome.end is not changeover.End.CHANGED:
        raise NotIt(
            f"{checked.release.id} does not live here: {outcome.reason} In use: {outcome.release}."
        )
    return {"release": outcome.release, "archive": checked.release.archive_name, "sha256": sha256}


def _copy(pieces: Iterator[bytes], file: BinaryIO, *, sha256: str) -> None:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
        file.write(piece)
    if digest.hexdigest() != sha256:
        raise NotIt("The archive is not the one that the Platform names: fetch it again.")
    file.seek(0)


def _unpack(file: BinaryIO, checked: "archive.Archive", *, folder: pathlib.Path) -> None:
    """The three files that the installer takes, from an archive that has just been checked."""
    from installer import release as releases  # noqa: PLC0415 - as above

    (folder / releases.RELEASE).write_bytes(checked.release.to_bytes())
    (folder / releases.INSTALL_SH).write_bytes(checked.install_sh)
    file.seek(checked.payload_offset)
    left = checked.payload_size
    with (folder / releases.PAYLOAD).open("xb") as payload:
        while left and (piece := file.read(min(left, _PIECE))):
            payload.write(piece)
            left -= len(piece)


def _verifier(path: pathlib.Path) -> "archive.Verify":
    """By the release key that this machine trusts from its first installation on."""
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - as above
    from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415

    from runtime_kit import private_files  # noqa: PLC0415
    from wire_protocol import signing  # noqa: PLC0415

    try:
        pem = private_files.read_regular(path, max_bytes=_MOST_KEY)
        key = serialization.load_pem_public_key(pem)
    except (OSError, ValueError, private_files.FileTooLarge) as error:
        raise NotInstalled(f"{path} cannot be read. Run the installer again.") from error
    if not isinstance(key, ed25519.Ed25519PublicKey):
        raise NotInstalled(f"{path} is no Ed25519 key. Run the installer again.")
    return signing.verifier_of(key)


def _present(here: "installed.Installed") -> str:
    from installer import switch  # noqa: PLC0415 - as above

    found = switch.current(here.layout)
    if found is None:
        raise NotInstalled("No release is in use on this machine. Run the installer again.")
    return found


def _module(here: "installed.Installed", *words: str, origin: str | None) -> list[str]:
    named = ["--from", origin] if origin is not None else []
    return [_MODULE, "--data-dir", str(here.layout.data_dir), *named, *words]
