"""Makes sure that no exception was logged by code that goes on all the same."""

import contextlib
import logging
from collections.abc import Iterator

_MOST = 5


class _Watch(logging.Handler):
    def __init__(self) -> None:
        super().__init__(level=logging.ERROR)
        self.told: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and len(self.told) < _MOST:
            self.told.append(logging.Formatter().format(record))


@contextlib.contextmanager
def none_told() -> Iterator[None]:
    """Fails at the end of the `with` if something was logged with its traceback."""
    watch = _Watch()
    root = logging.getLogger()
    root.addHandler(watch)
    try:
        yield
    finally:
        root.removeHandler(watch)
    assert watch.told == [], "\n".join(watch.told)
