"""Metrics of the client, with the names and labels of client-go.

Source: component-base metrics/prometheus/restclient/metrics.go.
Differs: no metrics of sizes, DNS and exec plugins.
"""

from prometheus_client import Counter, Gauge, Histogram

REQUESTS = Counter(
    "rest_client_requests_total",
    "Number of HTTP requests, partitioned by status code, method, and host.",
    ("code", "method", "host"),
)
RETRIES = Counter(
    "rest_client_request_retries_total",
    "Number of request retries, partitioned by status code, verb, and host.",
    ("code", "verb", "host"),
)
DURATION = Histogram(
    "rest_client_request_duration_seconds",
    "Request latency in seconds. Broken down by verb, and host.",
    ("verb", "host"),
    buckets=(0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0),
)
EVENTS_DROPPED = Counter(
    "kruise_probe_events_dropped_total",
    "Occurrences of events that were never written, by reason.",
    ("reason",),
)
EVENTS_PENDING = Gauge("kruise_probe_events_pending", "Series of events that wait to be written.")


class RequestMetrics:
    """Request metrics of one client. Children are looked up once per combination of labels."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._requests: dict[tuple[str, str], Counter] = {}
        self._durations: dict[str, Histogram] = {}

    def completed(self, method: str, code: str, seconds: float) -> None:
        """Count one request. `code` is `<error>` without a response, as in client-go."""
        requests = self._requests.get((code, method))
        if requests is None:
            requests = REQUESTS.labels(code, method, self._host)
            self._requests[code, method] = requests
        requests.inc()
        durations = self._durations.get(method)
        if durations is None:
            durations = self._durations[method] = DURATION.labels(method, self._host)
        durations.observe(seconds)

    def retried(self, method: str, code: str) -> None:
        RETRIES.labels(code, method, self._host).inc()
