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
