"""One line at the foot of a terminal that says how far an operation has come; silent elsewhere.

What is said meanwhile goes through `say`, so that lines and bar never mix.
"""

import sys
from typing import Final, TextIO

from operator_cli import columns

_CELLS: Final = 24
_CLEAR: Final = "\r\x1b[K"


class Bar:
    """Drawn on `out` where that is a terminal."""

    def __init__(self, out: TextIO | None = None, *, width: int = 79) -> None:
        self._out = out or sys.stderr
        self._shows = self._out.isatty()
        self._width = width
        self._drawn = False

    def draw(self, text: str, *, done: int, total: int) -> None:
        """`[######......] text`, cut to the line."""
        if not self._shows or total <= 0:
            return
        full = _CELLS * min(done, total) // total
        line = f"[{'#' * full}{'.' * (_CELLS - full)}] {columns.clean(text)}"
        self._out.write(f"{_CLEAR}{line[: self._width]}")
        self._out.flush()
        self._drawn = True

    def say(self, sentence: str) -> None:
        """A line above the bar."""
        self.close()
        self._out.write(f"{sentence}\n")
        self._out.flush()

    def close(self) -> None:
        """Takes the bar away; what comes of it is said by others."""
        if self._drawn:
            self._out.write(_CLEAR)
            self._out.flush()
            self._drawn = False
