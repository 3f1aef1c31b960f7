"""What the API counts of itself: requests and their time, by route and status."""

import prometheus_client

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


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

    def answered(self, *, method: str, path: str, status: int, seconds: float) -> None:
        """Counts one request."""
        self._requests.labels(method=method, route=path, status=str(status)).inc()
        self._seconds.labels(route=path).observe(seconds)
