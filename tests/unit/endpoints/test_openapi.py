"""The OpenAPI document: made from the routes, with every status they may answer with."""

import asyncio
import json
from typing import Any

import jsonschema_rs
import pytest

from platform_server.endpoints import (
    api_tokens,
    audit_log,
    event_stream,
    health,
    measures,
    openapi,
    routes,
)
from wire_protocol import admin


def _document() -> dict[str, Any]:
    meter = measures.Meter()
    stream = event_stream.EventStream(most=1, draining=asyncio.Event(), meter=meter)
    served: list[routes.Route] = [
        *api_tokens.served(),
        *audit_log.served(),
        *event_stream.served(stream),
        *health.served(
            readiness=health.Readiness([]),
            gatherer=measures.Gatherer(meter),
            openapi=lambda: b"",
        ),
    ]
    document: dict[str, Any] = json.loads(openapi.document(served))
    return document


def test_every_reference_leads_somewhere() -> None:
    text = json.dumps(_document())
    names = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert names - set(_document()["components"]["schemas"]) == set()


def test_every_schema_is_one() -> None:
    for name, schema in _document()["components"]["schemas"].items():
        assert jsonschema_rs.meta.is_valid(schema), name


def test_a_change_can_be_checked_and_repeated() -> None:
    operation = _document()["paths"]["/api/v1/tokens"]["post"]
    assert [one["name"] for one in operation["parameters"]] == ["check", "Idempotency-Key"]
    assert set(operation["responses"]) == {
        "200", "201", "400", "401", "403", "409", "413", "415", "422", "503",
    }  # fmt: skip
    assert operation["security"] == [{"token": []}]


def test_an_open_route_names_no_permission_to_have() -> None:
    operation = _document()["paths"]["/healthz"]["get"]
    assert "security" not in operation
    assert "401" not in operation["responses"]


def test_nothing_promises_a_fault_of_ours() -> None:
    for path, operations in _document()["paths"].items():
        for method, operation in operations.items():
            assert "500" not in operation["responses"], (method, path)


@pytest.mark.parametrize("field", ["limit", "cursor", "infra"])
def test_every_list_takes_what_lists_take(field: str) -> None:
    for path in ("/api/v1/tokens", "/api/v1/audit"):
        names = [one["name"] for one in _document()["paths"][path]["get"]["parameters"]]
        assert field in names


def test_a_problem_has_the_shape_that_is_promised() -> None:
    from wire_protocol import problems  # noqa: PLC0415 - read beside the schema it is held against

    schema = _document()["components"]["schemas"]["Problem"]
    for code in problems.CODES:
        problem = problems.Problem(code=code, detail="d", request_id="r", retry_after=1)
        jsonschema_rs.validate(schema, json.loads(problem.to_json()))


def test_the_models_that_are_answered_say_nothing_of_secrets() -> None:
    assert not {"token_hash", "certificate_pem"} & set(admin.ApiToken.model_fields)
    assert not {"token_hash", "certificate_pem"} & set(admin.Node.model_fields)
