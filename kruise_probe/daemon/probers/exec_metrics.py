"""Metrics of exec probes: commands in flight, shared, and waiting for a place."""

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

QUEUE_BUCKETS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Buckets of the queue time, in seconds."""


class QueueSeconds:
    """A histogram of the queue time."""

    def __init__(self) -> None:
        self._counts = [0] * (len(QUEUE_BUCKETS) + 1)
        self._seconds = 0.0

    def observe(self, seconds: float) -> None:
        self._counts[bisect_left(QUEUE_BUCKETS, seconds)] += 1
        self._seconds += seconds

    def family(self) -> HistogramMetricFamily:
        buckets: list[tuple[str, float]] = []
        total = 0
        for bound, count in zip((*map(str, QUEUE_BUCKETS), "+Inf"), self._counts, strict=True):
            total += count
            buckets.append((bound, total))
        return HistogramMetricFamily(
            "kruise_probe_exec_queue_seconds",
            "Time that commands waited for a place under --max-concurrent-execs.",
            buckets=buckets,
            sum_value=self._seconds,
        )


class Gate(Protocol):
    """The metrics of an `ExecGate`."""

    in_flight: int
    shared: int
    queue: QueueSeconds

    @property
    def queued_probes(self) -> int: ...


class ExecGateCollector(Collector):
    """Exports the metrics of one gate at each scrape."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "kruise_probe_exec_in_flight",
            "Commands that the container runtime runs for probes right now.",
            value=self._gate.in_flight,
        )
        yield GaugeMetricFamily(
            "kruise_probe_exec_queued_probes",
            "Probes that have waited for a place longer than max(3 periods, 30 s) and are Unknown (ExecQueued).",
            value=self._gate.queued_probes,
        )
        yield CounterMetricFamily(
            "kruise_probe_exec_shared",
            "Commands that were not run, because an identical one was queued or in flight.",
            value=self._gate.shared,
        )
        yield self._gate.queue.family()
