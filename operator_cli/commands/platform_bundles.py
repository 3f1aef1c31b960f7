"""`enlist platform bundles`: what new machines install from, served at the bundle port."""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import click

from enlist import bundles as bundle_calls
from enlist import driving, errors
from installer import release as releases
from operator_cli import arguments, columns, connection, global_options, lazy, printing

_READ_BYTES = 1_048_576
_MAX_KEY_BYTES = 4096
_SHA256 = re.compile(r"[0-9a-f]{64}")


@click.group(cls=lazy.Group, no_args_is_help=True)
def bundles() -> None:
    """What new machines install from, served at --bundle-port.

    Examples:
      enlist platform bundles add dist/
      enlist platform bundles list
      enlist platform bundles remove 0.1.0
    """


@arguments.command(bundles, "add")
@click.argument("place", metavar="FILE|DIR", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--release-key",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The public key (PEM) that signed it.  [default: the Platform's own]",
)
def add(place: Path, release_key: Path | None) -> None:
    """Add a worker bundle, or the latest ones of a released folder.

    The Platform checks the signature before anything is served. The newest version of each
    architecture becomes the one that machines install. --release-key works on the Platform's
    own machine only. Run again, it finishes what was cut off.

    Examples:
      enlist platform bundles add enlist-worker-0.1.0-x86_64.tar
      enlist platform bundles add dist/ --release-key release.pub
    """
    key = None if release_key is None else _key(release_key)
    done: list[Any] = []
    for file in _archives(place):
        found = _add(file, key=key)
        if found is not None:
            done += found["changes"]
    if not global_options.current().check:
        printing.show({"changes": done}, lines=lambda: _done(done))


@arguments.command(bundles, "list")
def list_() -> None:
    """List the bundles, the newest first.

    Example:
      enlist platform bundles list -o json
    """
    found = connection.ask(bundle_calls.list_())
    printing.show({"bundles": found["bundles"]}, lines=lambda: _table(found["bundles"]))


@arguments.command(bundles, "remove")
@click.argument("which", metavar="VERSION|SHA256")
def remove(which: str) -> None:
    """Remove the bundles of a version, or the one with a hash.

    Machines that run it are not touched; the newest of the others becomes the one to install.

    Example:
      enlist platform bundles remove 0.1.0
    """
    found = connection.ask(bundle_calls.list_())["bundles"]
    hashes = [one["sha256"] for one in found if which in (one["sha256"], one["version"])]
    if not hashes and _SHA256.fullmatch(which):
        hashes = [which]  # one that was cut off is in no list
    if not hashes:
        raise errors.NotFound(
            f"There is no bundle {which[:80]!r} here: enlist platform bundles list",
            code="not-found",
        )
    if not global_options.current().check:
        connection.confirm(f"Remove {len(hashes)} bundle(s)?")
    done: list[Any] = []
    for sha256 in hashes:
        answer = connection.change(bundle_calls.remove(sha256))
        if answer is not None:
            done += answer["changes"]
    if done:
        printing.show(
            {"changes": done}, lines=lambda: printing.changes({"changes": done}, check=False)
        )


def _add(file: Path, *, key: str | None) -> Any:
    with file.open("rb") as opened:
        sha256, size = _measure(opened)
        call = bundle_calls.add(sha256, size=size, release_key=key)
        if global_options.current().check:
            return connection.change(call)
        with connection.client() as client:
            known = client.document(bundle_calls.list_())["bundles"]
            if sha256 not in [one["sha256"] for one in known]:
                _send(opened, client=client, sha256=sha256, size=size)
            return client.document(call)


def _send(file: BinaryIO, *, client: driving.Waiting, sha256: str, size: int) -> None:
    file.seek(0)
    offset = 0
    printing.say(f"Sending {size:,} bytes …")
    while piece := file.read(bundle_calls.PIECE_BYTES):
        client.document(bundle_calls.put_piece(sha256, size=size, offset=offset, data=piece))
        offset += len(piece)


def _measure(file: BinaryIO) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    while data := file.read(_READ_BYTES):
        digest.update(data)
        size += len(data)
    return digest.hexdigest(), size


def _archives(place: Path) -> list[Path]:
    """The file itself, or what a released folder names as its latest worker bundles."""
    if not place.is_dir():
        return [place]
    found = []
    for arch in releases.ARCHES:
        latest = place / releases.latest_name("worker", arch)
        if latest.is_file():
            try:
                _, name = releases.parse_latest(latest.read_bytes()[:_MAX_KEY_BYTES])
            except releases.BadRelease as error:
                raise click.UsageError(f"{latest}: {error}") from error
            found.append(place / name)
    if not found:
        raise click.UsageError(
            f"{place} names no worker bundle (a file worker-x86_64 or worker-aarch64); "
            "./scripts/build-bundle makes such a folder."
        )
    missing = [str(file) for file in found if not file.is_file()]
    if missing:
        raise click.UsageError(f"{missing[0]} is named there and is missing.")
    return found


def _key(path: Path) -> str:
    with path.open("rb") as file:
        raw = file.read(_MAX_KEY_BYTES + 1)
    if len(raw) > _MAX_KEY_BYTES or b"-----BEGIN PUBLIC KEY-----" not in raw:
        raise click.UsageError(f"{path} is no public key in PEM form.")
    return raw.decode("ascii", "replace")


def _done(changes: list[Any]) -> Iterator[str]:
    if not changes:
        yield "It is there already."
        return
    yield from printing.changes({"changes": changes}, check=False)


def _table(found: list[Any]) -> Iterator[str]:
    if not found:
        yield "No bundles. Add one: enlist platform bundles add FILE|DIR"
        return
    yield from columns.table(
        ("VERSION", "ARCH", "PYTHONS", "BYTES", "INSTALLED BY NEW MACHINES", "SHA256"),
        [
            (
                one["version"],
                one["arch"],
                columns.listed(one["pythons"]),
                f"{one['size']:,}",
                "yes" if one["is_latest"] else "no",
                one["sha256"],
            )
            for one in found
        ],
    )
