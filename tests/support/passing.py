"""Starts a program as a service manager does: sockets by number and name, and a socket to tell.

`LISTEN_FDS`, `LISTEN_FDNAMES` and `LISTEN_PID` as sd_listen_fds(3) says, `NOTIFY_SOCKET` as
sd_notify(3). The sockets stay open here while the program is started anew, as a socket unit's do.
"""

import contextlib
import os
import pathlib
import select
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence

from tests.support import real_platform

# The pid is known only in the child: it writes its own into LISTEN_PID and becomes the program.
_STARTER = (
    "import fcntl,os,sys\n"
    "fds=[int(one) for one in sys.argv[1].split(',') if one]\n"
    "high=[fcntl.fcntl(one,fcntl.F_DUPFD_CLOEXEC,100) for one in fds]\n"
    "for target,one in enumerate(high,start=3): os.dup2(one,target,inheritable=True)\n"
    "os.environ['LISTEN_PID']=str(os.getpid())\n"
    "os.execv(sys.argv[2],sys.argv[2:])\n"
)


class Manager:
    """Sockets by name, and what the program has told."""

    def __init__(self, folder: pathlib.Path, sockets: Mapping[str, socket.socket]) -> None:
        self.sockets = sockets
        self.told: list[str] = []
        self._path = folder / "notify"
        self._notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._notify.bind(str(self._path))

    def start(
        self, arguments: Sequence[str], *, environment: Mapping[str, str], log: pathlib.Path
    ) -> subprocess.Popen[bytes]:
        """Starts it; the log takes what it writes to stderr."""
        self.told.clear()
        fds = [one.fileno() for one in self.sockets.values()]
        with log.open("ab") as errors:
            return subprocess.Popen(
                [sys.executable, "-c", _STARTER, ",".join(map(str, fds)), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                pass_fds=fds,
                start_new_session=True,
                env=real_platform.clean_environment(
                    {
                        **environment,
                        "LISTEN_FDS": str(len(fds)),
                        "LISTEN_FDNAMES": ":".join(self.sockets),
                        "NOTIFY_SOCKET": str(self._path),
                        "PYTHONPATH": os.fspath(pathlib.Path(__file__).parents[2]),
                    }
                ),
            )

    def wait_for(self, line: str, *, process: subprocess.Popen[bytes], seconds: float = 60) -> None:
        """Waits until the program has told this; it must not end before."""
        end = os.pidfd_open(process.pid)
        try:
            while line not in self.told:
                ready, _, _ = select.select([self._notify.fileno(), end], [], [], seconds)
                assert self._notify.fileno() in ready, f"It did not tell {line}, but {self.told}"
                self.told += self._notify.recv(4096).decode().splitlines()
        finally:
            os.close(end)

    def take_told(self) -> list[str]:
        """All that has been told by now, for a program that has ended."""
        self._notify.settimeout(0)
        with contextlib.suppress(BlockingIOError):
            while True:
                self.told += self._notify.recv(4096).decode().splitlines()
        self._notify.settimeout(None)
        return self.told

    def close(self) -> None:
        """Closes the sockets, as stopping their units does."""
        self._notify.close()
        for one in self.sockets.values():
            one.close()
