"""`scripts/release`: makes the release key, and builds, signs and uploads a release.

Refuses a checkout with changes beside its commit, and a tag that is not the version: what is
released can be built again from the commit it names. Exit codes: 2 for what cannot be released as
asked, 75 for what may work later.
"""

import argparse
import os
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from installer import release as release_format
from installer import waiting
from installer.build import (
    bundle_command,
    folder,
    making,
    signing,
    sigv4,
    sources,
    targets,
    upload,
    wheels,
)
from runtime_kit import clock
from runtime_kit.secret import Secret

_MOST_TOKEN_BYTES: Final = 8192


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    asked = _parser().parse_args(arguments)
    try:
        if asked.new_key is not None:
            _make_key(asked.new_key)
        else:
            _release(asked)
    except (wheels.WheelError, targets.UploadFailed) as error:
        bundle_command.say(str(error))
        return bundle_command.TRY_LATER
    except (*bundle_command.REFUSALS, targets.UploadRefused) as error:
        bundle_command.say(str(error))
        return bundle_command.WRONG
    except OSError as error:
        return bundle_command.not_written(error)
    return 0


def _make_key(path: pathlib.Path) -> None:
    """A key belongs where no checkout and no archive of one can take it along."""
    where = path.absolute()
    if (
        where.resolve().is_relative_to(bundle_command.ROOT)
        and bundle_command.ROOT / signing.KEY_FOLDER not in where.parents
    ):
        raise signing.KeyFileError(f"{path} is inside the checkout: keep the key outside of it.")
    key = signing.make(where)
    bundle_command.say(
        f"Made a release key in {path}. Whoever has it can make every machine run anything:"
    )
    bundle_command.say("keep it off networks, and a copy of it where it survives this machine.")
    bundle_command.say("Its public half, which machines are given with install.sh:")
    sys.stdout.write(f"{key.public_text}\n")


def _release(asked: argparse.Namespace) -> None:
    source = sources.read(asked.source)
    if source.changed:
        raise sources.SourceError(
            f"{asked.source} has changes beside its commit: commit them, or put them aside."
        )
    if asked.tag is not None and asked.tag != f"v{source.version}":
        raise sources.SourceError(
            f"The tag {asked.tag} is not v{source.version}, which {sources.VERSION_FILE} states."
        )
    # Whatever the command line has wrong is said before minutes are spent on building.
    going_to = [(text, _target(text, asked=asked)) for text in asked.to or ()]
    key = bundle_command.key_of(asked)
    built = list(
        making.make(
            source,
            roles=asked.role or release_format.ROLES,
            arches=release_format.ARCHES if asked.arch is None else bundle_command.arches_of(asked),
            pythons=asked.python or release_format.PYTHONS,
            cache=asked.cache,
            key=key,
            say=bundle_command.say,
        )
    )
    out = asked.out or bundle_command.ROOT / "dist" / source.version
    folder.write(out, built, artifacts=asked.artifact or (), key=key, wrote=bundle_command.wrote)
    for text, target in going_to:
        bundle_command.say(f"Uploading to {text}")
        upload.upload(out, target, key=key, waits=waiting.SystemWaits(), said=bundle_command.say)


def _target(text: str, *, asked: argparse.Namespace) -> targets.Target:
    if text.startswith("s3://"):
        keys = _keys(os.environ, region=asked.s3_region)
        return targets.WebTarget(
            targets.s3_url(text, region=keys.region, endpoint=asked.s3_endpoint),
            authorize=targets.with_keys(keys, clock=clock.SystemClock()),
            ca_file=asked.ca_file,
        )
    if "://" in text:
        return targets.WebTarget(
            text, authorize=targets.with_token(_token(asked)), ca_file=asked.ca_file
        )
    return targets.FolderTarget(pathlib.Path(text))


def _keys(environment: Mapping[str, str], *, region: str | None) -> sigv4.Keys:
    """The keys where every S3 tool looks for them; never on the command line."""
    access_key = environment.get("AWS_ACCESS_KEY_ID", "")
    secret_key = environment.get("AWS_SECRET_ACCESS_KEY", "")
    if not access_key or not secret_key:
        raise targets.UploadRefused(
            "An upload to s3:// needs AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
        )
    token = environment.get("AWS_SESSION_TOKEN")
    return sigv4.Keys(
        access_key=access_key,
        secret_key=Secret(secret_key),
        region=region or environment.get("AWS_REGION") or "us-east-1",
        session_token=Secret(token) if token else None,
    )


def _token(asked: argparse.Namespace) -> Secret | None:
    if asked.upload_token_file is None:
        return None
    try:
        with asked.upload_token_file.open("rb") as file:
            text = file.read(_MOST_TOKEN_BYTES + 1).decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise targets.UploadRefused(f"Cannot read {asked.upload_token_file}: {error}") from None
    if not text or not text.isprintable() or len(text) > _MOST_TOKEN_BYTES:
        raise targets.UploadRefused(f"{asked.upload_token_file} holds no token of one line.")
    return Secret(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/release",
        description="Build, sign and upload a release, for both roles and all architectures.",
    )
    parser.add_argument(
        "--new-key", type=pathlib.Path, metavar="FILE", help="make a release key, and nothing else"
    )
    bundle_command.add_options(parser)
    parser.add_argument(
        "--tag", metavar="vX.Y.Z", help="refuse unless the version is the one of this tag"
    )
    parser.add_argument(
        "--out", type=pathlib.Path, metavar="DIR", help="default: dist/VERSION, in the checkout"
    )
    parser.add_argument(
        "--to",
        action="append",
        metavar="TARGET",
        help="a folder, an https address that takes PUT, or s3://BUCKET/PREFIX; repeatable",
    )
    parser.add_argument(
        "--upload-token-file",
        type=pathlib.Path,
        metavar="FILE",
        help="sent as a bearer token to https targets",
    )
    parser.add_argument(
        "--ca-file", type=pathlib.Path, metavar="FILE", help="what certificates of targets rest on"
    )
    parser.add_argument("--s3-endpoint", metavar="URL", help="another S3-compatible store than AWS")
    parser.add_argument("--s3-region", metavar="NAME", help="default: AWS_REGION, else us-east-1")
    return parser


if __name__ == "__main__":
    sys.exit(main())
