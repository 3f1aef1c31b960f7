"""The log on stderr: for people on a terminal, JSON lines elsewhere.

Modules log through the standard library with fields in `extra`; structlog only renders. Nothing
is ever written to stdout here.
"""

import logging
import sys
from typing import Final, Literal

import structlog

Format = Literal["auto", "console", "json"]
FOREIGN: Final = (
    "aiohttp",
    "asyncio",
    # these write whole requests and answers at debug: sessions, tokens, first-boot data
    "boto3",
    "botocore",
    "google",
    "hcloud",
    "httpcore",
    "httpx",
    "libcloud",
    "requests",
    "urllib3",
)
"""Loggers of libraries, which say only what is wrong, whatever our own level is."""


def configure(*, level: str, form: Format, process: str) -> None:
    """Sets up logging for this process; may be repeated when the settings have changed."""
    console = form == "console" or (form == "auto" and sys.stderr.isatty())
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(),
            # The default shows local variables where rich is installed: tokens among them.
            exception_formatter=structlog.dev.plain_traceback,
        )
        if console
        else structlog.processors.JSONRenderer(sort_keys=True)
    )
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _process_adder(process),
    ]
    final: list[structlog.typing.Processor] = [
        structlog.stdlib.ProcessorFormatter.remove_processors_meta
    ]
    if not console:
        final.append(structlog.processors.format_exc_info)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=[*final, renderer])
    )
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    for name in FOREIGN:
        logging.getLogger(name).setLevel(logging.WARNING)


def _process_adder(process: str) -> structlog.typing.Processor:
    def add(
        _logger: structlog.typing.WrappedLogger,
        _name: str,
        event: structlog.typing.EventDict,
    ) -> structlog.typing.EventDict:
        event["process"] = process
        return event

    return add
