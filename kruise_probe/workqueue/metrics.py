"""Metrics of queues and reconcilers, with the names that controller-runtime uses.

A queue counts in plain numbers, and the collector turns them into samples at each scrape. A queue
therefore needs no timer, and its series disappear with it.

Source: controller-runtime pkg/internal/metrics/workqueue.go and pkg/internal/controller/metrics.
Differs: classic histograms only; the age of unfinished work is computed at each scrape, not every 500 ms.
"""

import collections
from collections.abc import Iterator
from typing import Any, Final
from weakref import WeakValueDictionary

from prometheus_client import REGISTRY, Counter, Gauge, Histogram
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from kruise_probe.api.histogram import DurationHistogram
from kruise_probe.api.times import loop_time
from kruise_probe.workqueue.queue import WorkQueue
from kruise_probe.workqueue.turns import Priority

RECONCILE_BUCKETS: Final = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9,
    1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5, 6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50, 60,
)  # fmt: skip
"""Seconds, as in controller-runtime."""

PRIORITY_LABELS: Final = {Priority.LOW: "-100", Priority.NORMAL: "0", Priority.HIGH: "100"}
"""Label values. controller-runtime uses -100 for initial lists and 0 for everything else."""


_queues: WeakValueDictionary[str, WorkQueue[Any]] = WeakValueDictionary()


def publish(queue: WorkQueue[Any]) -> None:
    """Export the counters of a queue under its name."""
    _queues[queue.name] = queue


class WorkQueueCollector(Collector):
    """Collects samples of the queues of all controllers.

    Scrape on the event loop: without it, the age of unfinished work is 0.
    """

    def collect(self) -> Iterator[Metric]:
        labels = ("name", "controller")
        depth = GaugeMetricFamily(
            "workqueue_depth",
            "Keys that need processing, by queue and priority",
            labels=(*labels, "priority"),
        )
        adds = CounterMetricFamily("workqueue_adds_total", "Keys added", labels=labels)
        retries = CounterMetricFamily(
            "workqueue_retries_total",
            "Keys added with a delay: retries and requeues",
            labels=labels,
        )
        unfinished = GaugeMetricFamily(
            "workqueue_unfinished_work_seconds",
            "Seconds spent so far on keys that are being processed; steady growth means that a reconcile hangs",
            labels=labels,
        )
        longest = GaugeMetricFamily(
            "workqueue_longest_running_processor_seconds",
            "Seconds spent so far on the key that has been processed for longest",
            labels=labels,
        )
        active = GaugeMetricFamily(
            "controller_runtime_active_workers",
            "Workers that are reconciling now",
            labels=("controller",),
        )
        queued = HistogramMetricFamily(
            "workqueue_queue_duration_seconds",
            "Seconds from adding a key until a worker gets it",
            labels=labels,
        )
        worked = HistogramMetricFamily(
            "workqueue_work_duration_seconds",
            "Seconds a worker spends on a key",
            labels=labels,
        )
        now = _loop_time()
        for name, queue in list(_queues.items()):
            own = (name, name)
            keys = collections.Counter(queue.dirty.values())
            for priority, text in PRIORITY_LABELS.items():
                depth.add_metric((*own, text), keys[priority])
            adds.add_metric(own, queue.adds)
            retries.add_metric(own, queue.retries)
            ages = [max(0.0, now - started_at) for started_at in queue.processing.values()]
            unfinished.add_metric(own, sum(ages))
            longest.add_metric(own, max(ages, default=0.0))
            active.add_metric((name,), len(queue.processing))
            _add_durations(queued, own, queue.queue_duration)
            _add_durations(worked, own, queue.work_duration)
        yield from (depth, adds, retries, unfinished, longest, active, queued, worked)


def _add_durations(
    family: HistogramMetricFamily,
    labels: tuple[str, str],
    durations: DurationHistogram,
) -> None:
    family.add_metric(labels, durations.buckets(), durations.total_seconds)


def _loop_time() -> float:
    try:
        return loop_time()
    except RuntimeError:
        return 0.0


REGISTRY.register(WorkQueueCollector())

_reconcile_total = Counter(
    "controller_runtime_reconcile_total", "Reconciles by result", ["controller", "result"]
)
_reconcile_errors = Counter(
    "controller_runtime_reconcile_errors_total", "Reconciles that failed", ["controller"]
)
_terminal_errors = Counter(
    "controller_runtime_terminal_reconcile_errors_total",
    "Reconciles that failed and are not retried",
    ["controller"],
)
_panics = Counter(
    "controller_runtime_reconcile_panics_total",
    "Reconciles that failed with an unexpected error",
    ["controller"],
)
_timeouts = Counter(
    "controller_runtime_reconcile_timeouts_total",
    "Reconciles that exceeded their deadline",
    ["controller"],
)
SLOW_STEPS = Counter(
    "kruise_probe_slow_steps_total",
    "Steps of reconciles that kept the event loop busy for more than 50 ms of CPU time",
    ["controller"],
)
_reconcile_time = Histogram(
    "controller_runtime_reconcile_time_seconds",
    "Seconds per reconcile",
    ["controller"],
    buckets=RECONCILE_BUCKETS,
)
_max_concurrent = Gauge(
    "controller_runtime_max_concurrent_reconciles", "Workers of a controller", ["controller"]
)


class ReconcileMetrics:
    """Series of one controller. All of them exist from the start, with the value zero."""

    def __init__(self, controller: str) -> None:
        self.success = _reconcile_total.labels(controller, "success")
        self.error = _reconcile_total.labels(controller, "error")
        self.requeue_after = _reconcile_total.labels(controller, "requeue_after")
        _reconcile_total.labels(controller, "requeue")
        self.errors = _reconcile_errors.labels(controller)
        self.terminal_errors = _terminal_errors.labels(controller)
        self.panics = _panics.labels(controller)
        self.timeouts = _timeouts.labels(controller)
        SLOW_STEPS.labels(controller)
        self.seconds = _reconcile_time.labels(controller)
        self.max_concurrent = _max_concurrent.labels(controller)
