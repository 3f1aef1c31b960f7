"""Runs programs of the distribution by name: bounded, in the C locale, with nothing on stdin.

The caller's environment is left out but for what finding programs and reaching the network needs,
so that an installation is the same whatever HOME, umask or language it was started with.
"""

import os
import pathlib
import subprocess
from collections.abc import Sequence

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_KEPT = ("http_proxy", "https_proxy", "no_proxy", "HTTPS_PROXY", "NO_PROXY", "TZ")
_MOST_SAID = 800
DEFAULT_SECONDS = 60.0


class ProgramFailed(Exception):
    """A program did not do what it was asked; the text ends with what it said."""


def environment(**more: str) -> dict[str, str]:
    """What every program gets."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return {**kept, "PATH": _PATH, "LC_ALL": "C", **more}


def printable(text: str) -> str:
    """What another program said, for a terminal: line ends stay, what commands it becomes `?`."""
    return "".join(sign if sign.isprintable() or sign == "\n" else "?" for sign in text)


def find(name: str) -> str | None:
    """Where a program of the distribution is, whatever the caller's PATH says."""
    for folder in _PATH.split(":"):
        path = pathlib.Path(folder) / name
        if path.is_file() and os.access(path, os.X_OK):
            return str(path)
    return None


def ask(
    command: Sequence[str], *, seconds: float = DEFAULT_SECONDS, folder: str = "/"
) -> subprocess.CompletedProcess[str]:
    """Runs it whatever its exit code. Raises `ProgramFailed` where it is missing or hangs."""
    try:
        return subprocess.run(
            list(command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
            env=environment(),
            cwd=folder,
        )
    except subprocess.TimeoutExpired:
        raise ProgramFailed(f"{command[0]} did not end within {seconds:.0f} s.") from None
    except OSError as error:
        raise ProgramFailed(f"{command[0]} cannot be run: {error.strerror}.") from error


def run(command: Sequence[str], *, seconds: float = DEFAULT_SECONDS) -> str:
    """Runs it and gives what it printed. Raises `ProgramFailed` with what it said otherwise."""
    done = ask(command, seconds=seconds)
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip() or "it said nothing")[-_MOST_SAID:]
        raise ProgramFailed(
            f"{' '.join(command)} ended with exit code {done.returncode}: {printable(said)}"
        )
    return done.stdout
