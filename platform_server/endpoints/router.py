"""Finds the route for a method and a raw request target.

By exact match on the path as it was sent: no dot segments, no doubled slashes, no encoded slash
that becomes one. A placeholder takes one segment, percent-decoded once. Pure: no request object.
"""

import dataclasses
import re
import urllib.parse
from collections.abc import Iterable, Mapping
from typing import Final

from platform_server.endpoints import routes

MAX_TARGET: Final = 8192
MAX_PARAMETER: Final = 128
MAX_QUERY_FIELDS: Final = 64
_ABSOLUTE_FORM = re.compile(r"^https?://[^/?#]*", re.IGNORECASE)


class NotFound(Exception):
    """No route has this path."""


class MethodNotAllowed(Exception):
    """The path exists, with other methods."""

    def __init__(self, allowed: tuple[str, ...]) -> None:
        super().__init__("Another method is needed here.")
        self.allowed = allowed


class Malformed(ValueError):
    """The request target cannot be read; the message says why."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A route with what its path and its query hold."""

    route: routes.Route
    path: Mapping[str, str]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A raw target taken apart: the path untouched, the query decoded in order."""

    path: str
    query: tuple[tuple[str, str], ...]


def read_target(raw: str) -> Target:
    """Splits the raw target (RFC 9112, section 3.2: origin-form or absolute-form).

    Raises `Malformed` for what is too long, holds control characters or is not UTF-8.
    """
    if len(raw) > MAX_TARGET:
        raise Malformed("The address is too long.")
    origin = _ABSOLUTE_FORM.sub("", raw, count=1)
    path, _, query = origin.partition("?")
    try:
        fields = urllib.parse.parse_qsl(
            query,
            keep_blank_values=True,
            errors="strict",
            max_num_fields=MAX_QUERY_FIELDS,
            strict_parsing=bool(query),
        )
    except ValueError:
        raise Malformed("The query cannot be read: it is name=value pairs joined by &.") from None
    if any(not _is_text(name) or not _is_text(value) for name, value in fields):
        raise Malformed("The query holds control characters.")
    return Target(path=path or "/", query=tuple(fields))


class Router:
    """All routes of one door."""

    def __init__(self, served: Iterable[routes.Route]) -> None:
        self.routes = tuple(served)
        self._literal: dict[str, dict[str, routes.Route]] = {}
        self._templates: dict[tuple[str, ...], dict[str, routes.Route]] = {}
        for route in self.routes:
            if route.parameters:
                methods = self._templates.setdefault(tuple(route.path.split("/")), {})
            else:
                methods = self._literal.setdefault(route.path, {})
            if route.method in methods:
                raise ValueError(f"The route {route.method} {route.path} is there twice.")
            methods[route.method] = route

    def find(self, method: str, path: str) -> Match:
        """The route for it; raises `NotFound` or `MethodNotAllowed`."""
        methods = self._literal.get(path)
        parameters: dict[str, str] = {}
        if methods is None:
            methods, parameters = self._find_template(path)
        elif method not in methods and any(one.word_may_be_an_id for one in methods.values()):
            others, parameters = self._find_template(path)
            methods = others if method in others else methods
        try:
            route = methods[method]
        except KeyError:
            raise MethodNotAllowed(tuple(sorted(methods))) from None
        return Match(route=route, path=parameters)

    def _find_template(self, path: str) -> tuple[dict[str, routes.Route], dict[str, str]]:
        segments = path.split("/")
        for template, methods in self._templates.items():
            if len(template) != len(segments):
                continue
            parameters: dict[str, str] = {}
            for part, segment in zip(template, segments, strict=True):
                if part.startswith("{"):
                    value = _decode(segment)
                    if value is None:
                        break
                    parameters[part[1:-1]] = value
                elif part != segment:
                    break
            else:
                return methods, parameters
        raise NotFound


def _decode(segment: str) -> str | None:
    try:
        value = urllib.parse.unquote(segment, errors="strict")
    except UnicodeDecodeError:
        return None
    if not value or len(value) > MAX_PARAMETER or not _is_text(value):
        return None
    return value


def _is_text(value: str) -> bool:
    """Whether a store can hold it: no control characters (PostgreSQL refuses NUL)."""
    return value.isprintable() or not any(
        ord(one) < 0x20 or ord(one) == 0x7F or 0xD800 <= ord(one) < 0xE000 for one in value
    )
