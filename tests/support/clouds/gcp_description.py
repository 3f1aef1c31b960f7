"""Google's own description of its interfaces, as the fake and its referee read it.

The description ships with google-api-python-client. It gives the fake its routes, so that no route
exists here that Google does not have, and the referee the names, types and words of every body.
"""

import functools
import importlib.util
import json
import pathlib
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from tests.support.clouds import server

DOCUMENTS: Final = ("compute.v1", "cloudresourcemanager.v1", "serviceusage.v1")
_OUTPUT: Final = "[Output Only]"
_CHECKS: Final[Mapping[str, Any]] = {
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "array": list,
    "object": dict,
}


@functools.cache
def document(name: str) -> Mapping[str, Any]:
    """One of the descriptions."""
    found = importlib.util.find_spec("googleapiclient")
    assert found is not None
    assert found.origin is not None
    folder = pathlib.Path(found.origin).parent / "discovery_cache" / "documents"
    told: Mapping[str, Any] = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return told


@functools.cache
def methods() -> tuple[tuple[str, re.Pattern[str], Mapping[str, Any], str], ...]:
    """All methods: HTTP verb, path, description, and which document it is from."""
    found = []
    for name in DOCUMENTS:
        told = document(name)
        base = "/" + told["servicePath"].strip("/")
        for method in _methods_of(told["resources"]):
            path = f"{base.rstrip('/')}/{method['path']}"
            found.append((method["httpMethod"], _pattern(path, method), method, name))
    found.sort(key=lambda row: "{+" in row[2]["path"])  # the closest fit first
    return tuple(found)


def _pattern(path: str, method: Mapping[str, Any]) -> re.Pattern[str]:
    """The path's template as an expression; a part that holds slashes says of which form it is."""
    written = ""
    for number, part in enumerate(re.split(r"\{(\+?\w+)\}", path)):
        if number % 2 == 0:
            written += re.escape(part)
        elif part.startswith("+"):
            form = method["parameters"][part[1:]].get("pattern", ".+")
            written += f"(?P<{part[1:]}>{form.removeprefix('^').removesuffix('$')})"
        else:
            written += f"(?P<{part}>[^/:]+)"
    return re.compile(written)


@functools.cache
def _known(verb: str, path: str) -> tuple[Mapping[str, Any], Mapping[str, str], str] | None:
    for method, pattern, told, name in methods():
        matched = pattern.fullmatch(path) if method == verb else None
        if matched is not None:
            return told, matched.groupdict(), name
    return None


def route(asked: server.Asked) -> tuple[Mapping[str, Any], Mapping[str, str], str] | None:
    """The method behind a request, the parts of its path, and its document's name."""
    return _known(asked.method, asked.path)


class Referee:
    """Holds every exchange to the description."""

    def __init__(self) -> None:
        self.faults: list[str] = []

    def check(self, asked: server.Asked, reply: server.Reply, *, address: str) -> None:
        """Writes down what the description does not allow."""
        del address
        found = route(asked)
        if found is None:
            return
        method, _, name = found
        told = document(name)
        allowed = {*method.get("parameters", {}), *told.get("parameters", {})}
        self._say(method, (f"no parameter {one}" for one in asked.query if one not in allowed))
        wanted = method.get("request", {}).get("$ref")
        if asked.body and wanted is None:
            self._say(method, ["takes no body"])
        elif asked.body:
            self._say(method, _faults(told, told["schemas"][wanted], asked.json(), sent=True))
        answered = method.get("response", {}).get("$ref")
        if reply.status == 200 and answered is not None:
            schema = told["schemas"][answered]
            self._say(method, _faults(told, schema, reply.document, sent=False))

    def _say(self, method: Mapping[str, Any], faults: Iterable[str]) -> None:
        self.faults += [f"{method['id']}: {one}" for one in faults]


def _faults(
    told: Mapping[str, Any], schema: Mapping[str, Any], value: Any, *, sent: bool, at: str = ""
) -> Iterable[str]:
    if "$ref" in schema:
        schema = told["schemas"][schema["$ref"]]
    wanted = _CHECKS.get(schema.get("type", ""))
    is_bool = isinstance(value, bool) and schema.get("type") != "boolean"
    if wanted is not None and (not isinstance(value, wanted) or is_bool):
        yield f"{at or 'the body'} is no {schema['type']}"
        return
    words = schema.get("enum")
    if words is not None and value not in words:
        yield f"{at} has no word {value!r}"
    if isinstance(value, list):
        for number, one in enumerate(value):
            inside = schema.get("items", {})
            yield from _faults(told, inside, one, sent=sent, at=f"{at}[{number}]")
    if isinstance(value, dict):
        yield from _faults_inside(told, schema, value, sent=sent, at=at)


def _faults_inside(
    told: Mapping[str, Any],
    schema: Mapping[str, Any],
    value: Mapping[str, Any],
    *,
    sent: bool,
    at: str,
) -> Iterable[str]:
    fields = schema.get("properties", {})
    others = schema.get("additionalProperties")
    for name, one in value.items():
        field = fields.get(name, others)
        if field is None:
            yield f"{at}.{name} is not described"
            continue
        if sent and field.get("description", "").startswith(_OUTPUT):
            yield f"{at}.{name} is never sent"
        yield from _faults(told, field, one, sent=sent, at=f"{at}.{name}")


def _methods_of(resources: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    for one in resources.values():
        yield from one.get("methods", {}).values()
        yield from _methods_of(one.get("resources", {}))
