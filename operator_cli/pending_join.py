"""Runs a join from a file instead of a command line, as the worker's account; finishes it later.

`python -I -m operator_cli.pending_join --data-dir DIR`: what `enlist worker join` typed as root
hands over on stdin (`--stdin`) is written to `pending-join.json` before anything is sent; the unit
enlist-join.service finds it there after a reboot. It goes away with the join's end, whichever that
is; only a failure that may pass, or a kill, leaves it. It holds the token: mode 0600, as every file
of the worker, and the token is spent or expired soon.
"""

import argparse
import json
import os
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from operator_cli import main as command_line
from runtime_kit import crash_points, private_files
from wire_protocol import problems, strict_json

FILE = "pending-join.json"
MOST_BYTES = 262_144  # two tokens, a CA file and the most of each list, several times over
WRITTEN = crash_points.declare(
    "pending-join.written", story="What a join was asked is on the disk; nothing has been sent."
)
ENDED = crash_points.declare(
    "pending-join.ended", story="The join has ended; what it was asked still stands there."
)
KEPT_FOR = (problems.Exit.TEMPORARY, problems.Exit.OUR_FAULT)
_FILE_VERSION = 1
_SECRETS = {
    "join_token": "--join-token-file",
    "ticket": "--ticket-file",
    "enrollment_token": "--enrollment-token-file",
}
_TEXTS = {"platform_url": "--platform-url", "node_id": "--node-id"}
_LISTS = {
    "fingerprints": "--platform-fingerprint",
    "addresses": "--address",
    "labels": "--label",
}


def main(arguments: Sequence[str]) -> int:
    """Joins; returns the join's exit code, 0 where nothing is pending."""
    parser = argparse.ArgumentParser(prog="python -I -m operator_cli.pending_join")
    parser.add_argument("--data-dir", type=pathlib.Path, required=True)
    parser.add_argument("--stdin", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--output", default="table")
    parser.add_argument("--debug", action="store_true")
    given = parser.parse_args(arguments)
    path = given.data_dir / FILE
    try:
        asked = _from_stdin() if given.stdin else _from_file(path)
        if asked is None:
            sys.stderr.write("No join is pending.\n")
            return problems.Exit.DONE
        keeps = given.stdin and not given.check and _has_token(asked)
        if keeps:
            private_files.ensure_private_folder(given.data_dir)
            private_files.write_private(path, json.dumps(asked).encode())
            crash_points.reach(WRITTEN)
    except (ValueError, private_files.FileTooLarge, private_files.LaxMode) as error:
        sys.stderr.write(f"Error: What is to be joined cannot be read: {error}\n")
        return problems.Exit.INVALID
    except OSError as error:
        sys.stderr.write(f"Error: {path} cannot be read or written: {error.strerror}.\n")
        return problems.Exit.TEMPORARY
    code = command_line.run([*_globals(given), "worker", "join", *_words(asked, check=given.check)])
    crash_points.reach(ENDED)
    if code not in KEPT_FOR and not given.check:
        path.unlink(missing_ok=True)
    return code


def _globals(given: argparse.Namespace) -> list[str]:
    words = ["--output", given.output, "--data-dir", str(given.data_dir)]
    return [*words, "--debug"] if given.debug else words


def _words(asked: Mapping[str, Any], *, check: bool) -> list[str]:
    """The join's own arguments; secrets are files without a name, never arguments."""
    words: list[str] = ["--check"] if check else []
    for name, flag in _SECRETS.items():
        if asked.get(name) is not None:
            words += [flag, _unnamed(asked[name])]
    if asked.get("ca_pem") is not None:
        words += ["--platform-ca-file", _unnamed(asked["ca_pem"])]
    for name, flag in _TEXTS.items():
        if asked.get(name) is not None:
            words += [flag, asked[name]]
    for name, flag in _LISTS.items():
        words += [word for one in asked.get(name) or [] for word in (flag, one)]
    if asked.get("port") is not None:
        words += ["--port", str(asked["port"])]
    return words


def _unnamed(content: str) -> str:
    descriptor = os.memfd_create("given", os.MFD_CLOEXEC)
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(content.encode())
    os.lseek(descriptor, 0, os.SEEK_SET)
    return f"/proc/self/fd/{descriptor}"


def _has_token(asked: Mapping[str, Any]) -> bool:
    return any(asked.get(name) is not None for name in _SECRETS)


def _from_stdin() -> dict[str, Any]:
    return parse(sys.stdin.buffer.read(MOST_BYTES + 1))


def _from_file(path: pathlib.Path) -> dict[str, Any] | None:
    try:
        return parse(private_files.read_private(path, max_bytes=MOST_BYTES))
    except FileNotFoundError:
        return None


def parse(raw: bytes) -> dict[str, Any]:
    """What is to be joined; raises `ValueError`."""
    fields = strict_json.read(raw, what="the pending join", most=MOST_BYTES)
    if fields.integer("file_version") != _FILE_VERSION:
        raise strict_json.Malformed("It was written by another version of Enlist; join again.")
    known: dict[str, Any] = {"file_version": _FILE_VERSION}
    for name in (*_SECRETS, *_TEXTS, "ca_pem"):
        known[name] = fields.text(name, most=65_536) if fields.has(name) else None
    for name in _LISTS:
        known[name] = list(fields.texts(name, most=64)) if fields.has(name) else []
    known["port"] = fields.integer("port", most=65_535) if fields.has("port") else None
    return known


def document(**asked: Any) -> bytes:
    """As `parse` reads it; what is not named is not asked for."""
    content = {"file_version": _FILE_VERSION, **asked}
    parse(json.dumps(content).encode())
    return json.dumps(content).encode()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
