"""Reads JSON from outside into values, without pydantic, for the programs that must stay small.

A size limit stands before any parsing, every field has a type, and the message names the field.
Unknown fields are left alone, so that an older reader understands a newer writer.
"""

import base64
import binascii
import contextlib
import datetime
import json
from collections.abc import Iterator
from typing import Any

from wire_protocol import times


class Malformed(ValueError):
    """What came from outside is not of the agreed form."""


@contextlib.contextmanager
def judged() -> Iterator[None]:
    """What a value's own reader says of it (`ValueError`) is said as `Malformed`."""
    try:
        yield
    except Malformed:
        raise
    except ValueError as fault:
        raise Malformed(str(fault)) from fault


class Fields:
    """The fields of one JSON object, read by type."""

    def __init__(self, content: Any, *, what: str) -> None:
        if not isinstance(content, dict):
            raise Malformed(f"{what} must be a JSON object.")
        self._content: dict[str, Any] = content
        self._what = what

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self._content.get(name) is not None

    def value(self, name: str) -> Any:
        """Whatever stands there, unjudged: for what belongs to somebody else's form."""
        return self._content.get(name)

    def text(self, name: str, *, most: int = 1024) -> str:
        """A text of at most `most` characters."""
        value = self._content.get(name)
        if not isinstance(value, str) or len(value) > most:
            raise self._fault(name, f"a text of at most {most} characters")
        return value

    def integer(self, name: str, *, least: int = 0, most: int = 2**53) -> int:
        """A whole number within its bounds."""
        value = self._content.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise self._fault(name, f"a whole number from {least} to {most}")
        return value

    def boolean(self, name: str) -> bool:
        """True or false."""
        value = self._content.get(name)
        if not isinstance(value, bool):
            raise self._fault(name, "true or false")
        return value

    def moment(self, name: str) -> datetime.datetime:
        """An RFC 3339 time."""
        try:
            return times.from_rfc3339(self.text(name, most=40))
        except ValueError as fault:
            raise self._fault(name, "an RFC 3339 time") from fault

    def raw(self, name: str, *, most: int) -> bytes:
        """Bytes given as base64."""
        text = self.text(name, most=(most + 2) // 3 * 4)
        try:
            return base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError) as fault:
            raise self._fault(name, "base64") from fault

    def items(self, name: str, *, most: int) -> list[Any]:
        """A list of at most `most` items."""
        value = self._content.get(name)
        if not isinstance(value, list) or len(value) > most:
            raise self._fault(name, f"a list of at most {most} items")
        return value

    def texts(self, name: str, *, most: int, longest: int = 1024) -> tuple[str, ...]:
        """A list of texts."""
        values = self.items(name, most=most)
        for value in values:
            if not isinstance(value, str) or len(value) > longest:
                raise self._fault(name, f"a list of texts of at most {longest} characters")
        return tuple(values)

    def inner(self, name: str) -> "Fields":
        """The fields of an object inside this one."""
        return Fields(self._content.get(name), what=f"{self._what}.{name}")

    def _fault(self, name: str, wanted: str) -> Malformed:
        return Malformed(f"{self._what}.{name} must be {wanted}.")


def read(raw: bytes, *, what: str, most: int) -> Fields:
    """Reads one JSON object of at most `most` bytes; raises `Malformed`."""
    if len(raw) > most:
        raise Malformed(f"{what} is larger than {most} bytes.")
    try:
        content = json.loads(raw)
    except (ValueError, RecursionError) as fault:
        raise Malformed(f"{what} is not JSON.") from fault
    return Fields(content, what=what)


def write(content: Any) -> bytes:
    """JSON in its one compact form: sorted keys, no blanks, UTF-8."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
