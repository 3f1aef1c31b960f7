"""How far a long work has come, on one line of a terminal; silent where there is none."""

import sys
import time
from collections.abc import Callable
from typing import Final, Self, TextIO

_STEP_SECONDS: Final = 0.2
_FIRST_SECONDS: Final = 1.0  # what is done sooner needs no line
_MEGABYTE: Final = 1_000_000


class Progress:
    """`with Progress("Reading", total=size) as told: … told(count)`; `total` may be unknown."""

    def __init__(
        self,
        what: str,
        *,
        total: int | None = None,
        out: TextIO | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._what = what
        self._total = total
        self._out = out or sys.stderr
        self._shows = self._out.isatty()
        self._done = 0
        self._monotonic = monotonic
        self._due = monotonic() + _FIRST_SECONDS
        self._shown = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self._shown:
            self._out.write("\r\x1b[K")  # the line goes: what comes of it is said by others
            self._out.flush()

    def __call__(self, count: int) -> None:
        """So many bytes more."""
        self._done += count
        if not self._shows or self._monotonic() < self._due:
            return
        self._due = self._monotonic() + _STEP_SECONDS
        self._shown = True
        of = "" if not self._total else f" of {self._total / _MEGABYTE:.1f}"
        self._out.write(f"\r\x1b[K{self._what}: {self._done / _MEGABYTE:.1f}{of} MB")
        self._out.flush()
