"""`/healthz` (is the engine alive), `/readyz` (can it do its work), `/metrics`, `/openapi.json`.

One health body everywhere. `/healthz` asks nobody, so that a slow store does not get the engine
killed; `/readyz` asks the store.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from platform_server.endpoints import calls, measures, routes
from wire_protocol import admin, product

Probe = Callable[[], Awaitable[admin.HealthCheck]]


def alive() -> admin.Health:
    """The body of a process that answers."""
    return admin.Health(status="ok", version=product.VERSION, checks=[])


async def healthz(call: calls.Call[None, routes.NoQuery]) -> admin.Health:
    """Answers as long as the engine answers at all."""
    del call
    return alive()


class Readiness:
    """`/readyz`: the checks of every part, in one body."""

    def __init__(self, checks: Sequence[Probe]) -> None:
        self._checks = tuple(checks)

    async def __call__(self, call: calls.Call[None, routes.NoQuery]) -> calls.Reply:
        """200 when nothing failed, else 503 with the same body."""
        del call
        found = [await check() for check in self._checks]
        states = {check.status for check in found}
        worst = next((one for one in ("failed", "warning") if one in states), "ok")
        body = admin.Health.model_validate(
            {"status": worst, "version": product.VERSION, "checks": found}
        )
        return calls.Reply(body=body, status=503 if worst == "failed" else 200)


def served(
    *, readiness: Readiness, gatherer: measures.Gatherer, openapi: Callable[[], bytes]
) -> tuple[routes.Route, ...]:
    """The routes beside the API."""

    async def metrics(call: calls.Call[None, routes.NoQuery]) -> calls.Reply:
        return calls.Reply(
            body=await gatherer.text(call.store), status=200, media_type=measures.MEDIA_TYPE
        )

    async def document(call: calls.Call[None, routes.NoQuery]) -> calls.Reply:
        del call
        return calls.Reply(body=openapi(), status=200)

    plain: dict[str, Any] = {"method": "GET"}
    return (
        routes.Route(
            path="/healthz",
            summary="Whether the engine answers.",
            handler=healthz,
            answer=admin.Health,
            **plain,
        ),
        routes.Route(
            path="/readyz",
            summary="Whether the Platform can do its work.",
            handler=readiness,
            answer=admin.Health,
            other_statuses={503: "Something that is needed failed; the body says what."},
            **plain,
        ),
        routes.Route(
            path="/metrics",
            summary="Figures for Prometheus.",
            handler=metrics,
            answer=None,
            media_type="text/plain",
            **plain,
        ),
        routes.Route(
            path="/openapi.json",
            summary="This document.",
            handler=document,
            answer=None,
            media_type="application/json",
            **plain,
        ),
    )
