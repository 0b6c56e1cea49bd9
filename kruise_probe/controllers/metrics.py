"""Metrics of the manager, except those of its queues.

Source: no counterpart.
"""

from prometheus_client import Counter, Gauge, Histogram

RESULT_TO_CONDITION = Histogram(
    "kruise_probe_result_to_condition_seconds",
    "From seeing a changed result in a NodePodProbe to the answer of the API server that the pod shows it.",
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
POD_WRITES_DELAYED = Counter(
    "kruise_probe_pod_writes_delayed",
    "Reconciles that put off the write of a pod because its token bucket was empty, by cause.",
    ("cause",),
)
PROBES_LEFT_OUT = Gauge(
    "kruise_probe_probes_left_out",
    "Probes of pods that are not probed because of a limit.",
    ["reason"],
)
AGENTS_STALE = Gauge(
    "kruise_probe_agents_stale",
    "Nodes whose agent let its Lease expire and reports nothing.",
)
