"""`scripts/build-bundle`: signed archives of this checkout, in a folder that machines install from.

Exit codes: 2 for what cannot be built as asked, 75 when wheels could not be downloaded.
"""

import argparse
import errno
import pathlib
import platform
import sys
from collections.abc import Sequence
from typing import Final

from installer import release as release_format
from installer.build import folder, making, signing, sources, wheels

ROOT: Final = pathlib.Path(__file__).resolve().parents[2]
WRONG: Final = 2
TRY_LATER: Final = 75
_ALL: Final = "all"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    asked = _parser().parse_args(arguments)
    try:
        _build(asked)
    except wheels.WheelError as error:
        say(str(error))
        return TRY_LATER
    except REFUSALS as error:
        say(str(error))
        return WRONG
    except OSError as error:
        return not_written(error)
    return 0


def not_written(error: OSError) -> int:
    """Says which file could not be written; a full disk may have room later."""
    say(f"{error.filename or 'A file'} could not be written: {error.strerror}")
    return TRY_LATER if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO) else WRONG


# What a builder refuses with a sentence for whoever called it.
REFUSALS: Final = (
    sources.SourceError,
    signing.KeyFileError,
    folder.FolderError,
    release_format.BadRelease,
)


def say(text: str) -> None:
    """Tell the person; stdout is for what was made."""
    sys.stderr.write(f">> {text}\n")


def wrote(path: pathlib.Path) -> None:
    """Name a file that was made."""
    sys.stdout.write(f"{path}\n")


def _build(asked: argparse.Namespace) -> None:
    source = sources.read(asked.source)
    key = key_of(asked)
    built = list(
        making.make(
            source,
            roles=asked.role or release_format.ROLES,
            arches=arches_of(asked),
            pythons=asked.python or release_format.PYTHONS,
            cache=asked.cache,
            key=key,
            say=say,
        )
    )
    folder.write(asked.out, built, artifacts=asked.artifact or (), key=key, wrote=wrote)


def key_of(asked: argparse.Namespace) -> signing.ReleaseKey:
    """The key that was named, or the checkout's own."""
    if asked.key is not None:
        return signing.load(asked.key)
    key, path, made = signing.of_the_checkout(ROOT)
    if made:
        say(f"No --key was given, so a release key was made for this checkout alone: {path}")
        say(f"Its public half: {key.public_text}")
    return key


def arches_of(asked: argparse.Namespace) -> Sequence[release_format.Arch]:
    """The architectures asked for; without any, this machine's."""
    if _ALL in (asked.arch or ()):
        return release_format.ARCHES
    wanted = asked.arch or [platform.machine()]
    found = [arch for arch in release_format.ARCHES if arch in wanted]
    if not found:
        known = ", ".join(release_format.ARCHES)
        raise sources.SourceError(f"This machine is a {wanted[0]}; say --arch, one of {known}")
    return found


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that say what is built, for whom, and signed by what."""
    parser.add_argument(
        "--role", action="append", choices=release_format.ROLES, help="repeatable; default: both"
    )
    parser.add_argument(
        "--arch",
        action="append",
        choices=(*release_format.ARCHES, _ALL),
        help="repeatable; default: this machine's",
    )
    parser.add_argument(
        "--python",
        action="append",
        choices=release_format.PYTHONS,
        help="repeatable; default: all that Enlist supports",
    )
    parser.add_argument("--key", type=pathlib.Path, metavar="FILE", help="the private release key")
    parser.add_argument(
        "--artifact",
        action="append",
        type=pathlib.Path,
        metavar="FILE",
        help="another file to list and sign, such as a kernel; repeatable",
    )
    parser.add_argument(
        "--cache",
        type=pathlib.Path,
        default=ROOT / ".cache" / "wheels",
        metavar="DIR",
        help="downloaded wheels; default: .cache/wheels",
    )
    parser.add_argument(
        "--source", type=pathlib.Path, default=ROOT, metavar="DIR", help="default: this checkout"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/build-bundle",
        description="Build signed archives for `install.sh --from DIR`.",
    )
    add_options(parser)
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        default=ROOT / "dist",
        metavar="DIR",
        help="where to put them; default: dist",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
