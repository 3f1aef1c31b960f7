"""The list of routes with who may call them, from the routes' own values and the access table.

The handlers are built over nothing and never called; what is read of them is what the OpenAPI
document is made from too. A route that nobody added here stops the script: the access table
knows of it.
"""

import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pydantic
from pydantic import json_schema

from platform_server.doctor import inside
from platform_server.endpoints import (
    access_table,
    api_tokens,
    audit_log,
    backups,
    bundle_routes,
    cloud_connections,
    cloud_machines,
    cloud_ordering,
    cloud_orphans,
    cloud_overview,
    cloud_resources,
    enroll_server,
    enrollments,
    event_stream,
    health,
    master_key,
    node_orders,
    node_scheduling,
    nodes,
    operation_decisions,
    operations,
    platform_routes,
    routes,
)
from platform_server.settings import groups
from scripts.pages import forms
from wire_protocol import admin, problems

_NOTHING: Final[Any] = None
_REF: Final = "#/{model}"
_KINDS: Final = {
    problems.Kind.TRANSIENT: "again later",
    problems.Kind.PERMANENT: "not again",
    problems.Kind.NEEDS_OPERATOR: "a person first",
}


def served() -> Sequence[routes.Route]:
    """Every route, in the order of their paths; raises `Unlisted` as the engine's start does."""
    found = [
        *nodes.Nodes(_NOTHING).served(),
        *node_scheduling.NodeScheduling(_NOTHING).served(),
        *node_orders.NodeOrders(operators=_NOTHING, sign=_NOTHING, given=_NOTHING).served(),
        *enrollments.Enrollments(operators=_NOTHING, invitation=_NOTHING, cap=_NOTHING).served(),
        *platform_routes.PlatformRoutes(
            trust=_NOTHING, keyring=_NOTHING, whereabouts=_NOTHING, ports_changed=_NOTHING
        ).served(),
        *enroll_server.routes_of(_NOTHING, places=_NOTHING),
        *api_tokens.served(),
        *audit_log.served(),
        *backups.served(_NOTHING),
        *bundle_routes.BundleRoutes(
            pathlib.Path(), settings=groups.BundlesGroup(), url=_NOTHING
        ).served(),
        *operations.Operations(operators=_NOTHING, archives=_NOTHING, changed=_NOTHING).served(),
        *operation_decisions.OperationDecisions(_NOTHING).served(),
        *cloud_overview.CloudOverview(_NOTHING, keyring=_NOTHING).served(),
        *cloud_connections.CloudConnections(_NOTHING, viewer=_NOTHING).served(),
        *cloud_ordering.Ordering(_NOTHING, offered=_NOTHING).served(),
        *cloud_resources.CloudResources(_NOTHING).served(),
        *cloud_orphans.CloudOrphans(_NOTHING).served(),
        *cloud_machines.CloudMachines(_NOTHING, ordering=_NOTHING, viewer=_NOTHING).served(),
        *event_stream.served(_NOTHING),
        *master_key.served(_NOTHING),
        *inside.served(_NOTHING),
        *health.served(readiness=_NOTHING, gatherer=_NOTHING, openapi=_NOTHING),
    ]
    access_table.require_complete(frozenset(route.key for route in found))
    return sorted(found, key=lambda route: (route.path, route.method))


def text() -> str:
    """A table of all routes, each route by itself, and the objects that they answer."""
    listed = served()
    lines = ["| Route | Permission | Does |", "|---|---|---|"]
    lines += [
        f"| `{route.method} {route.path}` | {_rule(route)} | {route.summary} |" for route in listed
    ]
    for route in listed:
        lines += ["", *_section(route)]
    return "\n".join([*lines, "", *_objects(listed)])


def codes_text() -> str:
    """Every code of a problem document."""
    lines = ["| Code | Status | Try again? | Exit code | Title |", "|---|---|---|---|---|"]
    lines += [
        f"| `{name}` | {code.status} | {_KINDS[code.kind]} | {int(code.exit)} | {code.title} |"
        for name, code in sorted(problems.CODES.items(), key=lambda one: (one[1].status, one[0]))
    ]
    return "\n".join(lines)


def _rule(route: routes.Route) -> str:
    rule = access_table.permission_of(route.key)
    return f"`{rule}`" if "." in rule and " " not in rule else rule


def _section(route: routes.Route) -> Iterator[str]:
    yield f"### `{route.method} {route.path}`"
    yield ""
    yield f"{route.summary} Permission: {_rule(route)}."
    yield ""
    yield from (f"- path `{name}`: {what}" for name, what in route.parameters.items())
    yield from _fields(_shape(route.query), word="query")
    yield from (f"- header `{one.name}`: {one.text}" for one in route.headers)
    if route.changes:
        yield "- query `check`: true or false. Says what would change, and changes nothing."
    if route.idempotent_by_key:
        yield "- header `Idempotency-Key`"
    if route.request is not None:
        yield from _fields(_shape(route.request), word="body")
    yield f"- answers {_answer(route)}"
    if route.problems:
        yield f"- refuses with {', '.join(f'`{code}`' for code in route.problems)}"


def _answer(route: routes.Route) -> str:
    statuses = " or ".join(str(status) for status in (route.status, *route.other_statuses))
    if route.answer is None:
        return f"{statuses}, `{route.media_type}`"
    kind = f"`{route.media_type}` of {route.answer.__name__}" if route.stream else None
    return f"{statuses}, {kind or route.answer.__name__}"


def _shape(model: type[pydantic.BaseModel]) -> Mapping[str, Any]:
    return model.model_json_schema(mode="validation", by_alias=True, ref_template=_REF)


def _fields(shape: Mapping[str, Any], *, word: str) -> Iterator[str]:
    needed = set(shape.get("required", ()))
    for name, one in shape.get("properties", {}).items():
        form = forms.of(one, name=name)
        if word == "query":
            form = form.removesuffix(" or null")  # it is left out instead
        default = one.get("default")
        extra = " Must be given." if name in needed and word == "body" else ""
        if default not in (None, "", [], {}):
            extra = f" Default {str(default).lower()}."
        about = f" {one['description'].rstrip('.')}." if one.get("description") else ""
        yield f"- {word} `{name}`: {form}.{about}{extra}"


def _objects(listed: Sequence[routes.Route]) -> Iterator[str]:
    """What is answered; the fields of a nested object stand under its own name."""
    models = {route.answer for route in listed if route.answer is not None} | {admin.Checked}
    wanted: list[tuple[type[pydantic.BaseModel], json_schema.JsonSchemaMode]] = [
        (model, "serialization") for model in models
    ]
    _, whole = json_schema.models_json_schema(wanted, ref_template=_REF)
    yield "## Objects"
    for name, shape in sorted(whole.get("$defs", {}).items()):
        yield ""
        yield f"### {name}"
        yield ""
        if shape.get("description"):
            yield f"{' '.join(shape['description'].split())}"
            yield ""
        for field, one in shape.get("properties", {}).items():
            yield f"- `{field}`: {forms.of(one, name=field)}"
