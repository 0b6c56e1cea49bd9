"""Metrics of the daemon: the two of kubelet's prober, and our own.

Each worker counts its attempts in plain integers. They become samples at a scrape, so an attempt costs little. The
series of a probe end with its worker.

Source: kubelet pkg/kubelet/prober/prober_manager.go (ProberResults, ProberDuration).
Differs: `probe_type` is `custom`. The label `probe` is added, because a container may have several custom probes.
"""

import collections
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from prometheus_client import Counter
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from kruise_probe.api.histogram import DurationHistogram
from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.names import ProbeKey
from kruise_probe.daemon.places import Places

PROBE_TYPE: Final = "custom"

_DURATION_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""In seconds; Go's default buckets, which kubelet uses."""

PORTION: Final = 50
"""Number of probes whose samples are made in one step."""

STATUS_WRITES = Counter(
    "kruise_probe_status_writes_total", "Writes of the status of this node's NodePodProbe."
)
STATUS_WRITE_FAILURES = Counter(
    "kruise_probe_status_write_failures_total", "Failed writes of the NodePodProbe status."
)
MESSAGES_SHORTENED = Counter(
    "kruise_probe_messages_shortened_total",
    "Messages that were shortened, over all writes, to keep the NodePodProbe below 1 MiB.",
)
TICKS_MISSED = Counter(
    "kruise_probe_ticks_missed_total",
    "Ticks at which a probe did not run, because the previous attempt was in flight or the daemon was late.",
)
WORKER_ERRORS = Counter(
    "kruise_probe_worker_errors_total",
    "Errors in a worker because of a defect; the log has the traceback.",
)
HEARTBEAT_FAILURES = Counter(
    "kruise_probe_heartbeat_failures_total", "Renewals of this node's Lease that failed."
)


class ProbeSeries:
    """The counters of one probe; `state` and `type` are its labels in `kruise_probe_probes`."""

    __slots__ = ("durations", "failed", "labels", "state", "successful", "type", "unknown")

    def __init__(self, key: ProbeKey, pod: NamespacedName) -> None:
        self.labels = (key.container, pod.name, pod.namespace, str(key.probe), key.pod_uid)
        self.type = ""
        self.state = "Pending"
        self.successful = 0
        self.failed = 0
        self.unknown = 0
        self.durations = DurationHistogram(_DURATION_BUCKETS)

    def succeeded(self, seconds: float) -> None:
        """Count a success; as in kubelet, only successes have a duration."""
        self.successful += 1
        self.durations.observe(seconds)


class ProbeCollector(Collector):
    """Turns the series of all running probes into samples."""

    def __init__(self, series: Callable[[], Iterable[ProbeSeries]]) -> None:
        """`series` is called at every scrape."""
        self._series = series

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily]:
        """Yield each family in portions of `PORTION` probes, so that no step of a scrape takes long."""
        series = list(self._series())
        yield from map(_results, _portions(series))
        # As in kubelet, durations have no pod uid: of two pods with the same name only one is shown.
        timed: dict[tuple[str, ...], ProbeSeries] = {}
        for probe in series:
            if probe.successful:
                timed.setdefault(probe.labels[:-1], probe)
        yield from map(_durations, _portions(list(timed.values())))
        yield _counts(series)


def _portions(series: list[ProbeSeries]) -> Iterator[list[ProbeSeries]]:
    for start in range(0, max(len(series), 1), PORTION):
        yield series[start : start + PORTION]


def _results(series: list[ProbeSeries]) -> CounterMetricFamily:
    family = CounterMetricFamily(
        "prober_probe",
        "Cumulative number of probes of a container by result.",
        labels=("probe_type", "result", "container", "pod", "namespace", "probe", "pod_uid"),
    )
    for probe in series:
        counts = {
            "successful": probe.successful,
            "failed": probe.failed,
            "unknown": probe.unknown,
        }
        for result, count in counts.items():
            if count:
                family.add_metric((PROBE_TYPE, result, *probe.labels), count)
    return family


def _durations(series: list[ProbeSeries]) -> HistogramMetricFamily:
    family = HistogramMetricFamily(
        "prober_probe_duration_seconds",
        "Duration in seconds of a successful probe.",
        labels=("probe_type", "container", "pod", "namespace", "probe"),
    )
    for probe in series:
        family.add_metric(
            (PROBE_TYPE, *probe.labels[:-1]),
            probe.durations.buckets(),
            probe.durations.total_seconds,
        )
    return family


def _counts(series: list[ProbeSeries]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        "kruise_probe_probes",
        "Probes that run on this node, by handler and by state; Pending has no state yet.",
        labels=("type", "state"),
    )
    counts = collections.Counter((probe.type, probe.state) for probe in series)
    for labels, count in counts.items():
        family.add_metric(labels, count)
    return family


class PlacesCollector(Collector):
    """Exports the metrics of the places at each scrape."""

    def __init__(self, *, execs: Places, sockets: Places) -> None:
        self._execs = execs
        self._sockets = sockets

    def collect(self) -> Iterator[GaugeMetricFamily | HistogramMetricFamily]:
        execs = (
            "kruise_probe_exec_in_flight",
            "kruise_probe_exec_queued_probes",
            "kruise_probe_exec_queue_seconds",
        )
        sockets = (
            "kruise_probe_socket_in_flight",
            "kruise_probe_socket_queued_probes",
            "kruise_probe_socket_queue_seconds",
        )
        for names, places in ((execs, self._execs), (sockets, self._sockets)):
            in_flight, queued_probes, queue_seconds = names
            yield GaugeMetricFamily(
                in_flight,
                "Attempts in flight.",
                value=places.in_flight,
            )
            yield GaugeMetricFamily(
                queued_probes,
                f"Probes that have waited for a place longer than max(3 periods, 30 s) and are Unknown ({places.reason}).",
                value=places.queued_probes,
            )
            yield HistogramMetricFamily(
                queue_seconds,
                "Time of an attempt in the queue for a place.",
                buckets=places.queue_durations.buckets(),
                sum_value=places.queue_durations.total_seconds,
            )
