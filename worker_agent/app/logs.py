"""The Agent's log: JSON lines for machines, one readable line for people on a terminal.

Standard library only, since structured logging libraries cost memory on every node. Fields go
beside the message (`logs.info(LOGGER, "Trust set renewed", epoch=1)`), ids always, secrets never.
An error is told by its kind and where it happened; its message, which may hold anything, and the
traceback are told with `--debug` alone.
"""

import datetime
import json
import logging
import sys
import traceback
from typing import TextIO

from wire_protocol import times

_FIELDS = "enlist_fields"
_MOST_FRAMES = 20
_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", _FIELDS}


class _Lines(logging.Formatter):
    """What both forms share."""

    def __init__(self, *, debug: bool = False) -> None:
        super().__init__()
        self._debug = debug

    def fields_of(self, record: logging.LogRecord) -> dict[str, object]:
        """The fields of `info` and `warning`, those of other packages' `extra`, and the error."""
        fields = {name: value for name, value in vars(record).items() if name not in _STANDARD}
        fields |= getattr(record, _FIELDS, {})
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            frames = traceback.extract_tb(error.__traceback__)[-_MOST_FRAMES:]
            fields["fault"] = type(error).__name__
            fields["frames"] = [f"{one.filename}:{one.lineno} {one.name}" for one in frames]
        return fields


class JsonLines(_Lines):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON."""
        line: dict[str, object] = {
            "at": times.to_rfc3339(datetime.datetime.fromtimestamp(record.created, datetime.UTC)),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **self.fields_of(record),
        }
        if record.exc_info and self._debug:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class Readable(_Lines):
    """One line for people: time, level, message, fields."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as text."""
        moment = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        fields = self.fields_of(record)
        fields.pop("frames", None)
        told = "".join(f"  {name}={value}" for name, value in fields.items())
        text = f"{moment:%H:%M:%S} {record.levelname.lower():7} {record.getMessage()}{told}"
        if record.exc_info and self._debug:
            text = f"{text}\n{self.formatException(record.exc_info)}"
        return text


def set_up(stream: TextIO | None = None, *, debug: bool = False) -> None:
    """Sends every log of this process to stderr, in the form that its reader wants."""
    target = sys.stderr if stream is None else stream
    handler = logging.StreamHandler(target)
    handler.setFormatter(Readable(debug=debug) if target.isatty() else JsonLines(debug=debug))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if debug else logging.INFO)
    logging.getLogger("asyncio").setLevel(logging.WARNING)


def info(logger: logging.Logger, message: str, **fields: object) -> None:
    """Logs what happened, with its fields."""
    logger.info(message, extra={_FIELDS: fields})


def warning(logger: logging.Logger, message: str, **fields: object) -> None:
    """Logs what somebody should look at, with its fields."""
    logger.warning(message, extra={_FIELDS: fields})
