"""Holds a fake to the provider's own description, so that it cannot drift into fiction.

The descriptions are not part of this project: they stand in the folder that
`ENLIST_PROVIDER_SPECS` names, by default `shared/specs` beside the checkout. Without them fakes
run unheld, and the test that says they are held is skipped with that reason.

Known limit: what a description leaves open (codes, states over time) it cannot hold.
"""

import functools
import json
import os
from pathlib import Path
from typing import Any

import openapi_core
from openapi_core.exceptions import OpenAPIError
from openapi_core.testing import MockRequest, MockResponse

from tests.support.clouds import server

_BESIDE = Path(__file__).resolve().parents[4] / "shared" / "specs"


def folder() -> Path:
    """Where the descriptions are, if they are."""
    return Path(os.environ.get("ENLIST_PROVIDER_SPECS", _BESIDE))


class Referee:
    """Checks exchanges against one OpenAPI document."""

    def __init__(
        self, openapi: openapi_core.OpenAPI, *, host: str, ignored: frozenset[str]
    ) -> None:
        self._openapi = openapi
        self._host = host
        self._ignored = ignored
        self.faults: list[str] = []
        self.checked = 0

    def check(self, asked: server.Asked, reply: server.Reply, *, address: str) -> None:
        """Writes down what the description does not allow; a request it refuses is one too."""
        del address
        if asked.path in self._ignored:
            return
        self.checked += 1
        request = MockRequest(
            self._host,
            asked.method.lower(),
            asked.path,
            args={
                name: values if len(values) > 1 else values[0]
                for name, values in asked.query.items()
            },
            headers=dict(asked.headers),
            data=asked.body or None,
            content_type=asked.headers.get("content-type", "application/json").partition(";")[0],
        )
        response = MockResponse(
            reply.body(),
            status_code=reply.status,
            content_type=reply.headers.get("content-type", "application/json"),
        )
        where = f"{asked.method} {asked.path} -> {reply.status}"
        try:
            if reply.status < 400:  # what is refused may well be out of shape
                self._openapi.validate_request(request)
            self._openapi.validate_response(request, response)
        except OpenAPIError as fault:
            self.faults.append(f"{where}: {_told(fault)}")


def of(name: str, *, host: str, ignored: frozenset[str] = frozenset()) -> Referee | None:
    """A referee by the description `NAME.openapi.json`; None where it is not here."""
    path = folder() / f"{name}.openapi.json"
    if not path.is_file():
        return None
    return Referee(_openapi(path), host=host, ignored=ignored)


@functools.cache
def _openapi(path: Path) -> openapi_core.OpenAPI:
    document: dict[str, Any] = json.loads(path.read_bytes())
    _mean_nulls(document, document)
    _mean_parameters(document)
    config = openapi_core.Config(spec_validator_cls=None)  # not ours to judge
    return openapi_core.OpenAPI.from_dict(document, config=config)


def _mean_nulls(part: Any, document: dict[str, Any]) -> None:
    """Lets `nullable` beside one `allOf` mean what its author meant; by OpenAPI 3.0 it is void."""
    if isinstance(part, list):
        for one in part:
            _mean_nulls(one, document)
    if not isinstance(part, dict):
        return
    inherited = part.get("allOf") if part.get("nullable") is True else None
    if isinstance(inherited, list) and len(inherited) == 1 and "$ref" in inherited[0]:
        del part["allOf"]
        part.update({**_resolved(inherited[0], document), "nullable": True})
    for one in list(part.values()):
        _mean_nulls(one, document)


def _mean_parameters(document: dict[str, Any]) -> None:
    """Lets a request fill in a parameter whose schema, shared with answers, is `readOnly`."""
    for parameter in document.get("components", {}).get("parameters", {}).values():
        either = parameter.get("schema", {}).get("anyOf", [])
        for place, one in enumerate(either):
            either[place] = {**_resolved(one, document), "readOnly": False}


def _resolved(part: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    meant: Any = document if "$ref" in part else part
    for step in str(part.get("$ref", "")).split("/")[1:]:
        meant = meant[step]
    return dict(meant)


def _told(fault: BaseException) -> str:
    found: list[str] = []
    seen: BaseException | None = fault
    while seen is not None:
        found.append(str(seen)[:200])
        for error in getattr(seen, "schema_errors", ()):
            place = "/".join(str(part) for part in error.absolute_path)
            found.append(f"at {place}: {error.message[-200:]}")
        seen = seen.__cause__
    return " | ".join(found)
