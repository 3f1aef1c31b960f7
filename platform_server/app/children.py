"""Starts the engine and the listener's processes and knows when they have gone.

They stay in the host's process group, so that a signal to the group reaches everybody, and die
with the host: the kernel sends SIGTERM to a child whose parent is gone (prctl, PR_SET_PDEATHSIG).
"""

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


class Child:
    """One child process."""

    def __init__(self, name: str, *, process: subprocess.Popen[bytes]) -> None:
        self.name = name
        self._process = process
        self._watch = os.pidfd_open(process.pid)
        self._gone: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().add_reader(self._watch, self._ended)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return not self._gone.done()

    async def ended(self) -> int:
        """Waits for its end; gives the exit code, negative for a signal."""
        return await asyncio.shield(self._gone)

    def send(self, number: signal.Signals) -> None:
        """Signals it, if it is still there."""
        if self.is_running:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def stop(self, *, seconds: float) -> int:
        """Asks it to end, waits that long, then kills it."""
        self.send(signal.SIGTERM)
        try:
            async with asyncio.timeout(seconds):
                return await self.ended()
        except TimeoutError:
            self.send(signal.SIGKILL)
            return await self.ended()

    def _ended(self) -> None:
        asyncio.get_running_loop().remove_reader(self._watch)
        os.close(self._watch)
        self._gone.set_result(self._process.wait())


def start(name: str, *, module: Sequence[str], inherit: Sequence[int]) -> Child:
    """Starts `python -m <module…>` with these descriptors and nothing on stdin and stdout."""
    process = subprocess.Popen(
        [sys.executable, "-m", *module],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=tuple(inherit),
        preexec_fn=_prepare,  # noqa: PLW1509 - three system calls, and the host has no threads
    )
    return Child(name, process=process)


def _prepare() -> None:
    """In the child, before it becomes the other program.

    A terminal's Ctrl-C and hang-up reach the whole group; the host decides what they mean.
    """
    _LIBC.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
