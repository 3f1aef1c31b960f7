"""What a program may put right by itself: said before it is done, and done as the right account.

A mend is one small, safe change with the words for it. A change that writes into another account's
folder is made by running the command that a person would run, as that account, so that nothing is
left there that its owner cannot read. It gets nothing of the caller but what it needs: no terminal,
and of the environment what is named here, since the caller may be root and the account is not.
"""

import contextlib
import dataclasses
import os
import pwd
import subprocess
import sys
from collections.abc import Callable, Sequence

_COMMAND_SECONDS = 40.0
_MOST_SAID = 500
_KEPT = ("PATH", "LANG", "LANGUAGE", "TZ")
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


class CannotMend(Exception):
    """It could not be put right; the sentence says why."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Mend:
    """One change: what is done, to what, and why; `apply` does it or raises `CannotMend`."""

    action: str
    target: str
    detail: str
    apply: Callable[[], None] = dataclasses.field(repr=False, compare=False)


def own_command(module: str, arguments: Sequence[str], *, uid: int, gid: int) -> Callable[[], None]:
    """Runs `python -m module arguments…` as the account that owns the files it will write."""

    def apply() -> None:
        other = {} if uid == os.geteuid() else {"user": uid, "group": gid, "extra_groups": []}
        try:
            done = subprocess.run(  # type: ignore[call-overload]
                [sys.executable, "-P", "-m", module, *arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_COMMAND_SECONDS,
                check=False,
                env=_environment(uid),
                start_new_session=True,
                **other,
            )
        except subprocess.TimeoutExpired:
            raise CannotMend(f"it did not end within {_COMMAND_SECONDS:.0f} s") from None
        except OSError as error:
            raise CannotMend(str(error.strerror)) from error
        if done.returncode != 0:
            said = done.stderr.strip()[-_MOST_SAID:] or "it said nothing"
            raise CannotMend(f"it ended with exit code {done.returncode}: {said}")

    return apply


def _environment(uid: int) -> dict[str, str]:
    """What it needs to run, and the packages where they were found by this program."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in _KEPT or name.startswith("LC_") or name.lower() in _PROXIES
    }
    with contextlib.suppress(KeyError):
        kept["HOME"] = pwd.getpwuid(uid).pw_dir
    return {**kept, "PYTHONPATH": os.pathsep.join(folder for folder in sys.path if folder)}
