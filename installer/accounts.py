"""The accounts under which Enlist runs: system accounts without login, home or password.

Made by `useradd` and removed by `userdel`, which every supported family has. Known limit: where
accounts come from a directory service, one of the same name there is used as it is, and removal
leaves it.
"""

import contextlib
import grp
import os
import pathlib
import pwd
import signal

from installer import programs, waiting

_PROC = pathlib.Path("/proc")
_GRACE_SECONDS = 5.0


def find(name: str) -> pwd.struct_passwd | None:
    """The account; None where there is none."""
    try:
        return pwd.getpwnam(name)
    except KeyError:
        return None


def ensure(name: str) -> None:
    """Makes the account and its group, unless they are there. Raises `ProgramFailed`."""
    if find(name) is not None:
        return
    shell = programs.find("nologin") or "/bin/false"
    command = [
        programs.find("useradd") or "useradd",
        *("--system", "--no-create-home", "--home-dir", "/nonexistent", "--shell", shell),
        *("--comment", "Enlist"),
        # A group of the name may be left from an account that was removed in half.
        *(("--gid", name) if _has_group(name) else ("--user-group",)),
        name,
    ]
    programs.run(command)


def remove(name: str) -> None:
    """Takes the account and its group away; does nothing where they are gone."""
    if find(name) is not None:
        programs.run([programs.find("userdel") or "userdel", name])
    if _has_group(name):
        programs.run([programs.find("groupdel") or "groupdel", name])


def end_processes(name: str, *, waits: waiting.Waits) -> None:
    """Ends what still runs as this account: asked to stop, then killed."""
    account = find(name)
    if account is None:
        return
    uid = account.pw_uid
    for number in processes_of(uid):
        _signal(number, signal.SIGTERM)
    if not waiting.until(lambda: not processes_of(uid), seconds=_GRACE_SECONDS, waits=waits):
        for number in processes_of(uid):
            _signal(number, signal.SIGKILL)
        waiting.until(lambda: not processes_of(uid), seconds=_GRACE_SECONDS, waits=waits)


def processes_of(uid: int) -> list[int]:
    """The numbers of all processes of this account."""
    found = []
    for entry in os.scandir(_PROC):
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and entry.stat().st_uid == uid:
                found.append(int(entry.name))
    return found


def _has_group(name: str) -> bool:
    try:
        grp.getgrnam(name)
    except KeyError:
        return False
    return True


def _signal(number: int, which: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(number, which)
