"""Named places at which a test may kill the process.

Code that must survive `kill -9` says `reach("join.token-sent")` at each step. The environment
variable `ENLIST_CRASH_AT` names the point at which the process kills itself, so that a test can
walk every point for real. Without the variable a point costs one comparison. Who can set the
environment of a process can kill it anyway, so the variable gives nobody a new power.
"""

import os
import signal

_VARIABLE = "ENLIST_CRASH_AT"
_declared: dict[str, str] = {}
_target = os.environ.get(_VARIABLE, "")


def declare(name: str, *, story: str) -> str:
    """Registers a point by name with one sentence on what has happened when it is reached."""
    if name in _declared and _declared[name] != story:
        raise ValueError(f"The crash point {name!r} is declared twice with different stories.")
    _declared[name] = story
    return name


def declared() -> dict[str, str]:
    """All points of the modules imported so far, name to story; tests walk these."""
    return dict(_declared)


def reach(name: str) -> None:
    """Marks that a point has been reached; kills this process if it is the chosen one."""
    if _target and name == _target:
        os.kill(os.getpid(), signal.SIGKILL)
