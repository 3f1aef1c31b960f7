"""The Agent's log: JSON lines for machines, one readable line for people on a terminal.

Standard library only, since structured logging libraries cost memory on every node. Fields go
beside the message (`logs.info(LOGGER, "Trust set renewed", epoch=1)`), ids always, secrets never.
"""

import datetime
import json
import logging
import sys
from typing import TextIO

from wire_protocol import times

_FIELDS = "enlist_fields"
_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", _FIELDS}


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON; a traceback becomes one field."""
        line: dict[str, object] = {
            "at": times.to_rfc3339(datetime.datetime.fromtimestamp(record.created, datetime.UTC)),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **_fields_of(record),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class Readable(logging.Formatter):
    """One line for people: time, level, message, fields."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as text."""
        moment = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        fields = _fields_of(record)
        told = "".join(f"  {name}={value}" for name, value in fields.items())
        text = f"{moment:%H:%M:%S} {record.levelname.lower():7} {record.getMessage()}{told}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


def _fields_of(record: logging.LogRecord) -> dict[str, object]:
    """The fields given to `info` and `warning`, and those of other packages' `extra`."""
    extra = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    return {**extra, **getattr(record, _FIELDS, {})}


def set_up(stream: TextIO | None = None, *, debug: bool = False) -> None:
    """Sends every log of this process to stderr, in the form that its reader wants."""
    target = sys.stderr if stream is None else stream
    handler = logging.StreamHandler(target)
    handler.setFormatter(Readable() if target.isatty() else JsonLines())
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
