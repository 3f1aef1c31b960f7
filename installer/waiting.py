"""Waits of the installer, which runs without an event loop: bounded, and moved by hand in tests."""

import datetime
import time
from collections.abc import Callable
from typing import Protocol


class Waits(Protocol):
    """Seconds that only rise, and a wait."""

    def monotonic(self) -> float:
        """Seconds that only ever rise."""
        ...

    def wait(self, seconds: float) -> None:
        """Waits that long."""
        ...


class SystemWaits:
    """Waits for real."""

    def monotonic(self) -> float:
        """The kernel's monotonic seconds."""
        return time.monotonic()

    def now(self) -> datetime.datetime:
        """The machine's wall time in UTC, for the receipt; nothing is decided by it."""
        return datetime.datetime.now(datetime.UTC)

    def wait(self, seconds: float) -> None:
        """Waits for real."""
        time.sleep(seconds)


def until(
    true: Callable[[], bool], *, seconds: float, waits: Waits, look_seconds: float = 0.1
) -> bool:
    """Looks again and again; says whether it came true in time."""
    end = waits.monotonic() + seconds
    while not true():
        if waits.monotonic() >= end:
            return False
        waits.wait(look_seconds)
    return True
