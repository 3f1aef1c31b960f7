"""Has the installed worker join, with the join token on its standard input and nowhere else.

`enlist worker join` typed as root runs as the worker's account by itself, in the data directory of
the receipt; a plain user's runs as he is.
"""

import getpass
import os
import pathlib
import subprocess
import sys
from collections.abc import Sequence

from installer import failures, programs
from installer import layout as layout_kit

_MOST_TOKEN_BYTES = 16 * 1024
_JOIN_SECONDS = 1800.0  # the join itself gives up long before
TERMINAL = pathlib.Path("/dev/tty")


def joined(layout: layout_kit.Layout) -> bool:
    """Whether this machine is a node: the last file a join writes is there."""
    return (layout.data_dir / "agent.json").exists()


def read_token(source: str) -> str:
    """The token from a file, or from stdin for `-`. Raises `Misuse`."""
    try:
        if source == "-":
            content = sys.stdin.buffer.read(_MOST_TOKEN_BYTES + 1)
        else:
            with pathlib.Path(source).open("rb") as file:
                content = file.read(_MOST_TOKEN_BYTES + 1)
    except OSError as error:
        raise failures.Misuse(
            f"The join token cannot be read from {source}: {error.strerror}."
        ) from error
    if len(content) > _MOST_TOKEN_BYTES:
        raise failures.Misuse(f"What {source} holds is too long to be a join token.")
    token = content.decode("utf-8", errors="replace").strip()
    if not token:
        raise failures.Misuse(f"There is no join token in {source}.")
    return token


def ask_for_token() -> str | None:
    """Asks on the terminal, unseen; None where there is no terminal or nothing was typed."""
    if not has_terminal():
        return None
    try:
        return getpass.getpass("Join token (empty: join later): ").strip() or None
    except EOFError:
        return None


def has_terminal() -> bool:
    """Whether a person sits before this process, also where stdin carries the script."""
    try:
        os.close(os.open(TERMINAL, os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def join(layout: layout_kit.Layout, *, token: str, arguments: Sequence[str]) -> int:
    """Runs the join; gives its exit code. What it says goes where the installer's words go."""
    command = [str(layout.command), "--data-dir", str(layout.data_dir), "worker", "join", "-"]
    try:
        done = subprocess.run(
            [*command, *arguments],
            input=token.encode(),
            stdout=sys.stderr,
            timeout=_JOIN_SECONDS,
            check=False,
            cwd="/",
            env=programs.environment(HOME=os.environ.get("HOME", "/")),
        )
    except subprocess.TimeoutExpired:
        raise failures.Temporary(
            f"The join did not end within {_JOIN_SECONDS:.0f} s. Run: {words(layout)} worker join -"
        ) from None
    except OSError as error:
        raise failures.Failure(f"{layout.command} cannot be run: {error.strerror}.") from error
    return done.returncode


def words(layout: layout_kit.Layout) -> str:
    """The command as a person types it."""
    return "sudo enlist" if layout.account else str(layout.link)
