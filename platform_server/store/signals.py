"""Signals: short messages from one engine to all engines of a store, this one included.

For: waking whoever waits for a row, at once instead of at the next look. Lossy by contract: one
may be lost (nobody is connected, too many wait), so behind every signal stands a look that finds
the same thing later. Whoever listens is called with an empty text when signals may have been
missed: look now.

On SQLite one engine runs, and `Hub` carries its signals from itself to itself; `postgres_signals`
carries them between engines.
"""

import logging
import re
from collections.abc import Callable
from typing import Final

_LOG = logging.getLogger(__name__)
_CHANNEL: Final = re.compile(r"[a-z][a-z-]{0,31}")
MAX_BYTES: Final = 4096
"""Of one payload: PostgreSQL takes 8000 bytes with the channel's name."""

MISSED: Final = ""
"""What a listener is called with when something may have been missed."""

Listener = Callable[[str], None]
Cancel = Callable[[], None]


class Hub:
    """The listeners of one process. Used from the event loop's thread alone."""

    def __init__(self) -> None:
        self._listeners: dict[str, list[Listener]] = {}

    def add(self, channel: str, listener: Listener) -> Cancel:
        """Calls the listener for every signal from now on; gives what ends that."""
        check_channel(channel)
        listeners = self._listeners.setdefault(channel, [])
        listeners.append(listener)

        def cancel() -> None:
            listeners[:] = [one for one in listeners if one is not listener]

        return cancel

    def tell(self, channel: str, payload: str) -> None:
        """Calls the listeners of the channel; a fault of one is logged and harms no other."""
        for listener in tuple(self._listeners.get(channel, ())):
            _call(listener, payload, channel=channel)

    def tell_missed(self, listener: Listener, *, channel: str) -> None:
        """Says so to one of them, who has just begun to hear."""
        _call(listener, MISSED, channel=channel)

    def tell_all_missed(self) -> None:
        """Says to all listeners that they may have missed something."""
        for channel in tuple(self._listeners):
            self.tell(channel, MISSED)


def check_channel(channel: str) -> None:
    """Raises `ValueError` for a channel that nobody may use: a fault of ours."""
    if not _CHANNEL.fullmatch(channel):
        raise ValueError(f"{channel!r} is no channel of signals.")


def check_payload(payload: str) -> None:
    """Raises `ValueError` for a payload that no store carries: a fault of ours."""
    if not payload or "\0" in payload or len(payload.encode()) > MAX_BYTES:
        raise ValueError(f"A signal carries 1 to {MAX_BYTES} bytes of text.")


def _call(listener: Listener, payload: str, *, channel: str) -> None:
    try:
        listener(payload)
    except Exception:  # noqa: BLE001 - whoever listens is not to end what carries the signals
        _LOG.exception("A listener met a fault of ours", extra={"channel": channel})
