import asyncio
import gc
import math
from collections import defaultdict
from itertools import chain

import pytest
from prometheus_client import REGISTRY, generate_latest
from prometheus_client.samples import Sample

from kruise_probe.workqueue.controller import Controller
from kruise_probe.workqueue.metrics import ReconcileMetrics, publish
from kruise_probe.workqueue.queue import WorkQueue
from kruise_probe.workqueue.turns import Priority

Queue = WorkQueue[str]

QUEUE = {"name", "controller"}
GO = {
    "workqueue_depth": QUEUE | {"priority"},
    "workqueue_adds_total": QUEUE,
    "workqueue_retries_total": QUEUE,
    "workqueue_unfinished_work_seconds": QUEUE,
    "workqueue_longest_running_processor_seconds": QUEUE,
    "workqueue_queue_duration_seconds_bucket": QUEUE | {"le"},
    "workqueue_queue_duration_seconds_count": QUEUE,
    "workqueue_queue_duration_seconds_sum": QUEUE,
    "workqueue_work_duration_seconds_bucket": QUEUE | {"le"},
    "workqueue_work_duration_seconds_count": QUEUE,
    "workqueue_work_duration_seconds_sum": QUEUE,
    "controller_runtime_reconcile_total": {"controller", "result"},
    "controller_runtime_reconcile_errors_total": {"controller"},
    "controller_runtime_terminal_reconcile_errors_total": {"controller"},
    "controller_runtime_reconcile_panics_total": {"controller"},
    "controller_runtime_reconcile_timeouts_total": {"controller"},
    "controller_runtime_reconcile_time_seconds_bucket": {"controller", "le"},
    "controller_runtime_reconcile_time_seconds_count": {"controller"},
    "controller_runtime_reconcile_time_seconds_sum": {"controller"},
    "controller_runtime_max_concurrent_reconciles": {"controller"},
    "controller_runtime_active_workers": {"controller"},
}
"""Names and labels of a Go manager's /metrics, controller-runtime 0.23."""


def samples_of(controller: str) -> list[Sample]:
    samples = chain.from_iterable(metric.samples for metric in REGISTRY.collect())
    return [sample for sample in samples if sample.labels.get("controller") == controller]


def value(metric: str, queue: Queue, **labels: str) -> float | None:
    names = {"name": queue.name, "controller": queue.name}
    return REGISTRY.get_sample_value(metric, names | labels)


async def nothing(_key: str) -> None:
    raise AssertionError("it does not run")


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> Queue:
    """The queue of a controller that does not run."""
    queue = Queue(name=request.node.name)
    Controller(queue=queue, reconcile=nothing, workers=1)
    return queue


async def test_d3_names_and_labels_are_those_of_go(queue: Queue) -> None:
    queue.add("a")
    ReconcileMetrics(queue.name)
    ours = {"kruise_probe_slow_steps_total": {"controller"}}
    labels = {
        sample.name: set(sample.labels)
        for sample in samples_of(queue.name)
        if not sample.name.endswith("_created")
    }
    assert labels == GO | ours


async def test_buckets_of_durations_are_those_of_go(queue: Queue) -> None:
    metrics = ReconcileMetrics(queue.name)
    metrics.seconds.observe(0)
    bounds: dict[str, list[float]] = defaultdict(list)
    for sample in samples_of(queue.name):
        if "le" in sample.labels:
            bounds[sample.name].append(float(sample.labels["le"]))
    powers_of_ten = [10.0**exponent for exponent in range(-8, 4)]
    expected = pytest.approx([*powers_of_ten, math.inf])
    assert bounds["workqueue_queue_duration_seconds_bucket"] == expected
    assert bounds["workqueue_work_duration_seconds_bucket"] == expected
    reconcile = bounds["controller_runtime_reconcile_time_seconds_bucket"]
    assert (reconcile[0], reconcile[-2], len(reconcile)) == (0.005, 60, 41)


async def test_series_of_all_results_exist_from_the_start(queue: Queue) -> None:
    ReconcileMetrics(queue.name)
    for result in ("success", "error", "requeue", "requeue_after"):
        labels = {"controller": queue.name, "result": result}
        assert REGISTRY.get_sample_value("controller_runtime_reconcile_total", labels) == 0


async def test_depth_is_by_priority_and_includes_keys_added_during_processing(
    queue: Queue,
) -> None:
    queue.add("low", Priority.LOW)
    queue.add("again", Priority.HIGH)
    await queue.get()
    queue.add("again")
    queue.add("other")
    for priority, depth in (("-100", 1), ("0", 2), ("100", 0)):
        assert value("workqueue_depth", queue, priority=priority) == depth


async def test_adds_count_a_ready_key_once_and_delayed_adds_as_retries(
    queue: Queue,
) -> None:
    for key in ("a", "b", "a"):
        queue.add(key)
    assert value("workqueue_adds_total", queue) == 2
    queue.add_after("c", 5)
    queue.add_rate_limited("d")
    queue.add_after("e", 0)
    assert value("workqueue_retries_total", queue) == 2


async def test_queue_and_work_durations_are_observed(queue: Queue) -> None:
    queue.add("a")
    await asyncio.sleep(5)
    queue.add("a")
    key, _ = await queue.get()
    await asyncio.sleep(0.5)
    queue.done(key)
    assert value("workqueue_queue_duration_seconds_sum", queue) == 5
    assert value("workqueue_work_duration_seconds_sum", queue) == 0.5
    assert value("workqueue_queue_duration_seconds_bucket", queue, le="1.0") == 0
    assert value("workqueue_queue_duration_seconds_bucket", queue, le="10.0") == 1


async def test_the_age_of_unfinished_work_is_computed_at_each_scrape(queue: Queue) -> None:
    def ages() -> list[float | None]:
        return [
            value("workqueue_unfinished_work_seconds", queue),
            value("workqueue_longest_running_processor_seconds", queue),
        ]

    queue.add("a")
    queue.add("b")
    assert ages() == [0, 0], "nothing is being processed"
    await asyncio.sleep(10)
    await queue.get()
    await asyncio.sleep(0.25)
    assert ages() == [0.25, 0.25]
    await asyncio.sleep(9.75)
    await queue.get()
    await asyncio.sleep(5)
    assert ages() == [20, 15]


async def test_without_an_event_loop_unfinished_work_has_no_age(queue: Queue) -> None:
    queue.add("a")
    await queue.get()
    age = await asyncio.to_thread(value, "workqueue_unfinished_work_seconds", queue)
    assert age == 0


async def test_series_end_with_their_queue() -> None:
    gone = Queue(name="short-lived")
    publish(gone)
    gone.add("a")
    assert b'name="short-lived"' in generate_latest()
    del gone
    gc.collect()
    assert b'name="short-lived"' not in generate_latest()
