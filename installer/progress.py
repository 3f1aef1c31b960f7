"""What the installer says while it works: one line a step, with the seconds since its start.

To stderr, as every message; a dry run says what it would do in the same words and does nothing.
"""

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import TextIO

from installer import programs


class Progress:
    """Says each phase and keeps how long it took."""

    def __init__(
        self, *, elapsed: float = 0.0, before: str = "", stream: TextIO | None = None
    ) -> None:
        self._began = time.monotonic() - elapsed
        self._spans = [part for part in before.split(",") if part]
        self._stream = stream or sys.stderr

    def say(self, text: str) -> None:
        """One line, with the seconds since the start."""
        seconds = time.monotonic() - self._began
        self._stream.write(f"enlist: [{seconds:5.1f} s] {programs.printable(text)}\n")
        self._stream.flush()

    @contextlib.contextmanager
    def phase(self, name: str, text: str) -> Iterator[None]:
        """Says it and measures it."""
        self.say(text)
        began = time.monotonic()
        try:
            yield
        finally:
            self._spans.append(f"{name} {time.monotonic() - began:.1f}")

    def summary(self) -> str:
        """The seconds of every phase, in order."""
        return ", ".join(f"{span} s" for span in self._spans)
