"""What an engine counts, without a store."""

import datetime

from platform_server.endpoints import measures
from runtime_kit import clock as clock_kit
from runtime_kit.http1 import messages
from wire_protocol import product

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
STATUSES = (
    (product.ENROLL_PATH, 201),
    (product.ENROLL_PATH, 200),
    (product.ENROLL_PATH, 403),
    (product.TRUST_PATH, 503),
    ("/anything/else", 404),
)


async def test_what_machines_ask_is_counted_by_path_and_class_of_status() -> None:
    clock = clock_kit.ManualClock(NOW)
    meter = measures.Meter()
    statuses = iter(status for _, status in STATUSES)

    async def answer(_: messages.Request) -> messages.Response:
        clock.advance(0.02)
        return messages.Response(status=next(statuses))

    counted = meter.counted(answer, clock=clock)
    for path, status in STATUSES:
        request = messages.Request(
            method="POST", target=path.encode(), headers={}, body=b"{}", peer=""
        )
        assert (await counted(request)).status == status
    name = "enlist_enroll_socket_requests_total"
    seen = {
        labels: meter.registry.get_sample_value(
            name, dict(zip(("path", "status"), labels, strict=True))
        )
        for labels in (("enroll", "2xx"), ("enroll", "4xx"), ("trust", "5xx"), ("other", "4xx"))
    }
    assert seen == {
        ("enroll", "2xx"): 2,
        ("enroll", "4xx"): 1,
        ("trust", "5xx"): 1,
        ("other", "4xx"): 1,
    }
    for seconds, expected in (("0.01", 0), ("0.025", 3)):
        assert expected == meter.registry.get_sample_value(
            "enlist_enroll_socket_seconds_bucket", {"path": "enroll", "le": seconds}
        )
