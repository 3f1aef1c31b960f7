"""The OpenAPI 3.1 document, made from the routes and their models.

Nothing is described here that a route does not say of itself, so the document cannot drift from
what is served. Every status a route may answer with is listed; 500 is not, since it is a fault.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import pydantic
from pydantic import json_schema

from platform_server.endpoints import access_table, cursors, mutations, routes
from wire_protocol import admin, cloud, ids, problems, product

_REF: Final = "#/components/schemas/{model}"
_PROBLEM: Final = {"$ref": "#/components/schemas/Problem"}
_JSON: Final = "application/json"
# What any route may refuse with: an unreadable request, wrong input, a store that cannot.
_ALWAYS: Final = ("malformed", "invalid", "store-busy", "store-full", "unavailable")
_WITH_BODY: Final = ("too-large", "unsupported-media-type")
_SIGNED_IN: Final = ("not-signed-in", "not-permitted")
# What stands in a path; another form names nothing that exists.
_PLACEHOLDERS: Final = {
    "bundle": "^[0-9a-f]{64}$",
    "node_id": ids.NODE_ID_AS_TYPED,
    "enrollment_id": "^[0-9a-f]{16}$",
    "token_id": "^[0-9a-f]{16}$",
    "order_id": "^[0-9a-f]{16}$",
    "operation_id": "^[0-9a-f]{16}$",
    "connection": cloud.CONNECTION_PATTERN,
    "resource": cloud.CONNECTION_PATTERN,
    "machine": ids.NODE_ID_AS_TYPED,
    "template": "^[0-9a-f]{16}$",
}

_PROBLEM_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "title": "Problem",
    "description": "A problem document (RFC 9457). Further members may stand beside these.",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string", "enum": sorted(problems.CODES)},
        "class": {"type": "string", "enum": [kind.value for kind in problems.Kind]},
        "request_id": {"type": "string"},
        "retry_after": {"type": "integer", "minimum": 0},
        "field": {"type": "string"},
    },
    "required": ["type", "title", "status", "detail", "code", "class", "request_id"],
}


def document(served: Iterable[routes.Route]) -> bytes:
    """The document as JSON, always the same for the same routes."""
    listed = sorted(served, key=lambda route: (route.path, route.method))
    names, schemas = _schemas(listed)
    paths: dict[str, Any] = {}
    for route in listed:
        operation = _operation(route, names=names)
        paths.setdefault(route.path, {})[route.method.lower()] = operation
    content = {
        "openapi": "3.1.0",
        "info": {
            "title": "Enlist Platform",
            "version": product.VERSION,
            "description": "Errors are problem documents (RFC 9457); times are RFC 3339 in UTC.",
        },
        "paths": paths,
        "components": {
            "schemas": {**schemas, "Problem": _PROBLEM_SCHEMA},
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "An API token."}
            },
        },
    }
    return json.dumps(content, separators=(",", ":")).encode()


_Key = tuple[type[pydantic.BaseModel], json_schema.JsonSchemaMode]


def _schemas(
    listed: Sequence[routes.Route],
) -> tuple[Mapping[_Key, dict[str, Any]], dict[str, Any]]:
    wanted: list[_Key] = [(admin.Checked, "serialization")]
    for route in listed:
        wanted += [(model, "serialization") for model in (route.answer,) if model is not None]
        wanted += [(model, "validation") for model in (route.request,) if model is not None]
    unique = list(dict.fromkeys(wanted))
    references, definitions = json_schema.models_json_schema(unique, ref_template=_REF)
    named = {key: dict(reference) for key, reference in references.items()}
    return named, dict(definitions.get("$defs", {}))  # type: ignore[return-value]


def _operation(route: routes.Route, *, names: Mapping[_Key, dict[str, Any]]) -> dict[str, Any]:
    rule = access_table.permission_of(route.key)
    operation: dict[str, Any] = {
        "operationId": _operation_id(route),
        "summary": route.summary,
        "tags": [route.path.removeprefix("/api/v1/").split("/")[0].lstrip("/")],
        "parameters": _parameters(route),
        "responses": _responses(route, rule=rule, names=names),
        "x-permission": rule,
    }
    if _needs_sign_in(rule):
        operation["security"] = [{"token": []}]
    if route.request is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {_JSON: {"schema": names[route.request, "validation"]}},
        }
    return operation


def _operation_id(route: routes.Route) -> str:
    words = [part.strip("{}") for part in route.path.split("/") if part not in ("", "api", "v1")]
    return "_".join([route.method.lower(), *words]).replace("-", "_").replace(".", "_")


def _needs_sign_in(rule: str) -> bool:
    return rule not in (access_table.ANYONE, access_table.TOKEN, access_table.LOCAL_OR_VIEW)


def _parameters(route: routes.Route) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": text,
            "schema": {"type": "string", "pattern": _PLACEHOLDERS[name]},
        }
        for name, text in route.parameters.items()
    ]
    schema = route.query.model_json_schema(mode="validation")
    for name, one in schema.get("properties", {}).items():
        plain = {key: value for key, value in one.items() if key not in ("title", "description")}
        if name == "cursor":
            plain = {"type": "string", "pattern": cursors.pattern_of(route.cursor)}
        found.append(
            {
                "name": name,
                "in": "query",
                "required": name in schema.get("required", []),
                "description": one.get("description", ""),
                "schema": _without_null(plain),
            }
        )
    if route.changes:
        found.append(
            {
                "name": "check",
                "in": "query",
                "required": False,
                "description": "true: say what would change, and change nothing.",
                "schema": {"type": "boolean"},
            }
        )
    if route.idempotent_by_key:
        found.append(
            {
                "name": "Idempotency-Key",
                "in": "header",
                "required": False,
                "description": "The same key within 24 hours gives the same answer.",
                "schema": {"type": "string", "pattern": mutations.KEY_PATTERN},
            }
        )
    found += [
        {
            "name": header.name,
            "in": "header",
            "required": False,
            "description": header.text,
            "schema": {"type": "string", "pattern": header.pattern},
        }
        for header in route.headers
    ]
    return found


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A query has no null: it is left out instead."""
    choices = [one for one in schema.get("anyOf", []) if one != {"type": "null"}]
    if "anyOf" in schema and len(choices) == 1:
        rest = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
        return {**choices[0], **rest}
    return schema


def _responses(
    route: routes.Route, *, rule: str, names: Mapping[_Key, dict[str, Any]]
) -> dict[str, Any]:
    answer = None if route.answer is None else names[route.answer, "serialization"]
    checked = names[admin.Checked, "serialization"]
    bodies: dict[int, list[Any]] = {route.status: [answer]}
    texts = dict(route.other_statuses)
    for status in route.other_statuses:
        bodies.setdefault(status, []).append(answer)
    if route.changes:
        bodies.setdefault(200, []).append(checked)
    if route.idempotent_by_key and route.secret_fields:
        bodies.setdefault(200, []).append(answer)
    responses: dict[str, Any] = {}
    for status, several in bodies.items():
        responses[str(status)] = _success(
            route, text=texts.get(status, HTTPStatus(status).phrase), schemas=several
        )
    for status, codes in _refusals(route, rule=rule).items():
        _add_problem(responses, status=status, codes=codes)
    return dict(sorted(responses.items()))


def _success(route: routes.Route, *, text: str, schemas: list[Any]) -> dict[str, Any]:
    several = [one for one in schemas if one is not None]
    if not several and route.media_type == _JSON and route.answer is None:
        return {"description": text, "content": {_JSON: {"schema": {"type": "object"}}}}
    if not several or route.stream:
        content = {route.media_type: {"schema": {"type": "string"}}}
        if route.changes:  # what ?check=true answers
            content[_JSON] = {"schema": several[-1]}
        return {"description": text, "content": content}
    unique = [one for number, one in enumerate(several) if one not in several[:number]]
    schema = unique[0] if len(unique) == 1 else {"anyOf": unique}
    return {"description": text, "content": {route.media_type: {"schema": schema}}}


def _refusals(route: routes.Route, *, rule: str) -> dict[int, list[str]]:
    codes = [*_ALWAYS, *route.problems]
    if rule not in (access_table.ANYONE, access_table.TOKEN):
        codes += _SIGNED_IN
    codes += _WITH_BODY if route.request is not None else ("too-large",)
    if route.idempotent_by_key:
        codes.append("idempotency-mismatch")
    if route.changes:
        codes.append("conflict")
    by_status: dict[int, list[str]] = {}
    for code in dict.fromkeys(codes):
        by_status.setdefault(problems.CODES[code].status, []).append(code)
    return by_status


def _add_problem(responses: dict[str, Any], *, status: int, codes: list[str]) -> None:
    response = responses.setdefault(str(status), {"description": "", "content": {}})
    named = f"Code {', '.join(sorted(codes))}."
    response["description"] = f"{response['description']} {named}".strip()
    response["content"][problems.MEDIA_TYPE] = {"schema": _PROBLEM}
