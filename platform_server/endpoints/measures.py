"""Figures for Prometheus: what this engine counted, and what the store says when it is asked.

Counts of nodes, enrollments and attempts come from the store, so that every engine of one
Platform answers the same. Labels are closed sets: routes, statuses, states.
"""

import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

import prometheus_client
from prometheus_client import core, registry

from platform_server.store import contract
from runtime_kit import clock as clock_kit
from runtime_kit.http1 import messages
from wire_protocol import product

Answer = Callable[[messages.Request], Awaitable[messages.Response]]

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
MEDIA_TYPE: Final = prometheus_client.CONTENT_TYPE_LATEST
_NODE_STATES: Final = ("enrolled", "ready", "unreachable", "needs-operator", "removed")
_OUTCOMES: Final = ("enrolled", "refused", "worker-newer", "node-exists", "invalid")
_MACHINE_PATHS: Final = {
    product.ENROLL_PATH.encode("ascii"): "enroll",
    product.TRUST_PATH.encode("ascii"): "trust",
}
_ORDER_STATES: Final = ("queued", "accepted", "done", "failed", "expired", "cancelled")
_ENROLLMENT_STATES: Final = ("pending", "consumed", "replaced", "revoked", "expired")


class Meter:
    """The counters of one engine, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = prometheus_client.CollectorRegistry()
        self._requests = prometheus_client.Counter(
            "enlist_requests_total",
            "Requests answered, by route and status.",
            ["method", "route", "status"],
            registry=self.registry,
        )
        self._seconds = prometheus_client.Histogram(
            "enlist_request_seconds",
            "Time from a request's head to the end of its answer.",
            ["route"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self._machines = prometheus_client.Counter(
            "enlist_enroll_socket_requests_total",
            "Requests answered to the enrollment listener, by path and class of status.",
            ["path", "status"],
            registry=self.registry,
        )
        self._machine_seconds = prometheus_client.Histogram(
            "enlist_enroll_socket_seconds",
            "Time from a request of the enrollment listener to its answer.",
            ["path"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self._events = prometheus_client.Gauge(
            "enlist_event_readers", "Readers of the event stream.", registry=self.registry
        )
        info = prometheus_client.Info("enlist", "This engine.", registry=self.registry)
        info.info({"version": product.VERSION})
        started = prometheus_client.Gauge(
            "enlist_start_time_seconds", "When this engine started.", registry=self.registry
        )
        started.set(time.time())

    def answered(self, *, method: str, path: str, status: int, seconds: float) -> None:
        """Counts one request."""
        self._requests.labels(method=method, route=path, status=str(status)).inc()
        self._seconds.labels(route=path).observe(seconds)

    def counted(self, answer: Answer, *, clock: clock_kit.Clock) -> Answer:
        """The same answers, each counted: of what comes over run/enroll.sock."""

        async def counting(request: messages.Request) -> messages.Response:
            started = clock.monotonic()
            answered = await answer(request)
            path = _MACHINE_PATHS.get(request.target, "other")
            self._machines.labels(path=path, status=f"{answered.status // 100}xx").inc()
            self._machine_seconds.labels(path=path).observe(clock.monotonic() - started)
            return answered

        return counting

    def watch_gateway(self, *, sessions: Callable[[], int], refused: Callable[[], int]) -> None:
        """Asks the gateway of this engine, at each reading, what it holds and has turned away."""
        self.registry.register(_Gateway(sessions=sessions, refused=refused))

    def event_readers(self, count: int) -> None:
        """Says how many read the event stream."""
        self._events.set(count)


class Gatherer:
    """The text of `/metrics`."""

    def __init__(self, meter: Meter) -> None:
        self._registry = meter.registry

    async def text(self, store: contract.Store) -> bytes:
        """Own counters and what the store says; raises as the store does."""
        families = [*await store.read(_from_rows), *_sizes(await store.sizes())]
        joined = core.CollectorRegistry()
        joined.register(_Fixed([*self._registry.collect(), *families]))
        return prometheus_client.generate_latest(joined)


class _Gateway(registry.Collector):
    def __init__(self, *, sessions: Callable[[], int], refused: Callable[[], int]) -> None:
        self._sessions = sessions
        self._refused = refused

    def collect(self) -> Iterator[core.Metric]:
        yield core.GaugeMetricFamily(
            "enlist_sessions", "Sessions that this engine holds.", value=self._sessions()
        )
        yield core.CounterMetricFamily(
            "enlist_gateway_refused_handshakes_total",
            "Handshakes at this engine's gateway that came to nothing.",
            value=self._refused(),
        )


class _Fixed(registry.Collector):
    def __init__(self, families: list[core.Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[core.Metric]:
        yield from self._families


def _sizes(sizes: contract.Sizes) -> Iterator[core.Metric]:
    for name, text, value in (
        ("database", "What the store takes on the disk.", sizes.database_bytes),
        ("wal", "What the write-ahead log takes on the disk.", sizes.wal_bytes),
        ("free", "Room inside the store for new rows.", sizes.free_bytes),
    ):
        yield core.GaugeMetricFamily(f"enlist_store_{name}_bytes", text, value=value)


async def _from_rows(tx: contract.Tx) -> list[core.Metric]:
    nodes = core.GaugeMetricFamily("enlist_nodes", "Nodes by state.", labels=["state"])
    rows = await tx.fetch_all("SELECT state, COUNT(*) AS n FROM nodes GROUP BY state LIMIT 20")
    _fill(nodes, counts={row["state"]: row["n"] for row in rows}, names=_NODE_STATES)
    enrollments = core.GaugeMetricFamily(
        "enlist_enrollments", "Enrollments kept, by state.", labels=["state"]
    )
    rows = await tx.fetch_all(
        "SELECT state, COUNT(*) AS n FROM enrollments GROUP BY state LIMIT 20"
    )
    _fill(enrollments, counts={row["state"]: row["n"] for row in rows}, names=_ENROLLMENT_STATES)
    attempts = core.GaugeMetricFamily(
        "enlist_enrollment_attempts", "Attempts in the capped log, by outcome.", labels=["outcome"]
    )
    rows = await tx.fetch_all(
        "SELECT outcome, SUM(count) AS n FROM enrollment_attempts GROUP BY outcome LIMIT 20"
    )
    _fill(attempts, counts={row["outcome"]: row["n"] for row in rows}, names=_OUTCOMES)
    orders = core.GaugeMetricFamily("enlist_orders", "Orders kept, by state.", labels=["state"])
    rows = await tx.fetch_all("SELECT state, COUNT(*) AS n FROM orders GROUP BY state LIMIT 20")
    _fill(orders, counts={row["state"]: row["n"] for row in rows}, names=_ORDER_STATES)
    probed = core.GaugeMetricFamily(
        "enlist_probe_last_answer_seconds",
        "When any node last answered the health question, in seconds since 1970.",
    )
    newest = await tx.fetch_one("SELECT MAX(probe_answered_at) AS at FROM nodes")
    at = None if newest is None else newest["at"]
    probed.add_metric([], 0 if at is None else int(at) / 1_000_000)
    return [nodes, enrollments, attempts, orders, probed]


def _fill(
    family: core.GaugeMetricFamily, *, counts: dict[str, int], names: tuple[str, ...]
) -> None:
    for name in names:
        family.add_metric([name], int(counts.get(name, 0)))
