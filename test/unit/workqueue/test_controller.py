import asyncio
from collections.abc import Callable

import pytest
import structlog
from structlog.contextvars import merge_contextvars
from structlog.testing import LogCapture
from support.background import background
from support.cases import cases
from support.metrics import counted, metric
from support.scripted_node import gaps

from kruise_probe.api.errors import ConnectionFailed, ServerError, TooManyRequests
from kruise_probe.api.times import loop_time
from kruise_probe.workqueue import retries
from kruise_probe.workqueue.controller import Controller, Reconcile, Result
from kruise_probe.workqueue.queue import WorkQueue
from kruise_probe.workqueue.turns import Priority

NAME = "consumed"
Queue = WorkQueue[str]


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    monkeypatch.setattr(retries, "BASE_DELAY_SECONDS", 1.0)
    monkeypatch.setattr(retries, "MAX_DELAY_SECONDS", 8.0)
    return Queue(name=NAME)


@pytest.fixture
def logged() -> LogCapture:
    capture = LogCapture()
    structlog.configure(processors=[merge_contextvars, capture])
    return capture


@pytest.fixture(autouse=True)
def _logs_as_before() -> object:
    yield
    structlog.reset_defaults()


def problems(logged: LogCapture) -> list[dict[str, object]]:
    """The log entries of reconciles."""
    return [dict(entry) for entry in logged.entries if entry["event"] != "starting workers"]


def counted_reconciles(what: str, **labels: str) -> Callable[[], float]:
    return counted(f"controller_runtime_reconcile_{what}", controller=NAME, **labels)


async def consume(
    queue: Queue,
    reconcile: Reconcile[str],
    *,
    seconds: float,
    workers: int = 1,
) -> None:
    """Runs a controller for `seconds`, then cancels it."""
    controller = Controller(queue=queue, reconcile=reconcile, workers=workers)
    async with background(controller.run()):
        await asyncio.sleep(seconds)


class Recorded:
    """A reconcile that records the times of its calls, and returns or raises the given results."""

    def __init__(self, *outcomes: Result | Exception | None) -> None:
        self.times: list[float] = []
        self._outcomes = iter(outcomes)

    async def __call__(self, _key: str) -> Result | None:
        self.times.append(round(loop_time(), 3))
        outcome = next(self._outcomes, None)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


@cases(
    "outcomes times",
    done=([None], [0]),
    empty_result=([Result()], [0]),
    requeue_after=([Result(requeue_after_seconds=7)], [0, 7]),
    requeue_at_once=([Result(requeue_after_seconds=0)], [0, 0]),
    retried=([ConnectionFailed("refused")], [0, 1]),
    retried_with_growing_backoff=([ValueError()] * 3, [0, 1, 3, 7]),
    retried_until_it_succeeds=([ValueError(), ValueError(), None], [0, 1, 3]),
)
async def test_result_or_error_decides_when_a_key_is_requeued(
    queue: Queue, outcomes: list[Result | Exception | None], times: list[float]
) -> None:
    reconcile = Recorded(*outcomes)
    queue.add("a")
    await consume(queue, reconcile, seconds=50)
    assert reconcile.times == times


async def test_retry_after_of_the_server_is_the_minimum_delay(queue: Queue) -> None:
    reconcile = Recorded(
        TooManyRequests("later", retry_after_seconds=20),
        ServerError("away", retry_after_seconds=1),
    )
    queue.add("a")
    await consume(queue, reconcile, seconds=100)
    _, second, third = reconcile.times
    assert 20 <= second <= 24
    assert third - second == pytest.approx(2, abs=0.01)


@cases(
    "outcome failures",
    success=(None, 0),
    requeue_after=(Result(requeue_after_seconds=100), 0),
    only_waits=(Result(requeue_after_seconds=100, finished=False), 1),
)
async def test_backoff_is_reset_when_there_is_nothing_to_retry(
    queue: Queue, outcome: Result | None, failures: int
) -> None:
    queue.add("a")
    await consume(queue, Recorded(ValueError(), outcome), seconds=5)
    assert queue.num_requeues("a") == failures


@cases(
    "outcome",
    requeue=Result(requeue_after_seconds=5),
    retry=OSError(),
)
async def test_the_next_reconcile_of_a_key_has_its_priority(
    queue: Queue, outcome: Result | Exception
) -> None:
    queue.add("a", Priority.LOW)
    await consume(queue, Recorded(outcome), seconds=0.5)
    assert await queue.get() == ("a", Priority.LOW)


@cases(
    "outcome result level panics",
    success=(None, "success", "", 0),
    requeue_after=(Result(requeue_after_seconds=99), "requeue_after", "", 0),
    expected=(ServerError("broken"), "error", "warning", 0),
    timeout_within=(TimeoutError("broken"), "error", "warning", 0),
    unexpected=(AttributeError("broken"), "error", "error", 1),
)
async def test_a_reconcile_is_counted_by_result_and_an_error_logged_once(
    queue: Queue,
    logged: LogCapture,
    outcome: Result | Exception | None,
    result: str,
    level: str,
    panics: int,
) -> None:
    by_result = counted_reconciles("total", result=result)
    errors = counted_reconciles("errors_total")
    panicked = counted_reconciles("panics_total")
    timeouts = counted_reconciles("timeouts_total")
    queue.add("ns/name")
    queue.add("other")
    await consume(queue, Recorded(outcome), seconds=0.5)
    assert by_result() == (2 if result == "success" else 1)
    assert errors() == (result == "error")
    assert panicked() == panics
    assert timeouts() == 0
    entries = problems(logged)
    assert [entry["log_level"] for entry in entries] == [level] * bool(level)
    for entry in entries:
        assert entry["controller"] == NAME
        assert entry["request"] == "ns/name"
        assert entry["reconcile_id"]
        assert entry.get("exc_info") or "broken" in str(entry["error"])


async def test_d4_a_reconcile_that_exceeds_its_timeout_is_counted_and_retried(
    queue: Queue, logged: LogCapture
) -> None:
    times: list[float] = []

    async def hang(_key: str) -> None:
        times.append(loop_time())
        await asyncio.sleep(1000)

    timeouts = counted_reconciles("timeouts_total")
    queue.add("a")
    await consume(queue, hang, seconds=40)
    assert times == [0, 31]
    assert timeouts() == 1
    assert [entry["event"] for entry in problems(logged)] == ["reconcile timed out"]


async def test_cancelled_workers_mark_their_keys_done(queue: Queue) -> None:
    async def hang(_key: str) -> None:
        await asyncio.sleep(1000)

    queue.add("a")
    await consume(queue, hang, seconds=1)
    assert queue.processing == {}


async def served_at_each_yield(
    queue: Queue, busy: Callable[[], None] = lambda: None, *, workers: int = 1
) -> list[int]:
    """How many of 1,000 quick reconciles had ended, each time that another task could run."""
    served = 0
    seen = [0]

    async def reconcile(_key: str) -> None:
        nonlocal served
        served += 1
        busy()

    for number in range(1000):
        queue.add(str(number))
    controller = Controller(queue=queue, reconcile=reconcile, workers=workers)
    async with background(controller.run()):
        while served < 1000:
            seen.append(served)
            await asyncio.sleep(0)
    return seen


async def test_reconciles_of_one_slice_do_not_yield_to_the_event_loop(
    queue: Queue,
) -> None:
    """No virtual time passes, so all of them are within one slice: a yield for each would double their cost."""
    seen = await served_at_each_yield(queue)
    assert len(set(seen)) < 10


@pytest.mark.parametrize("workers", [1, 48])
async def test_a_burst_of_quick_reconciles_yields_to_other_tasks_after_each_slice(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    """All workers share the slice. A yield costs no time: the rest of the burst is not delayed."""
    loop = asyncio.get_running_loop()
    virtual_time = loop.time
    busy_seconds = 0.0
    monkeypatch.setattr(loop, "time", lambda: virtual_time() + busy_seconds)

    def busy() -> None:
        nonlocal busy_seconds
        busy_seconds += 0.005 / 4

    seen = await served_at_each_yield(queue, busy, workers=workers)
    assert max(gaps(seen)) <= 5
    assert virtual_time() == 0


async def test_d1_a_transition_is_processed_before_ten_thousand_queued_keys(
    queue: Queue,
) -> None:
    transitions: list[float] = []

    async def reconcile(key: str) -> None:
        await asyncio.sleep(0.01)
        if key.startswith("transition"):
            transitions.append(loop_time())

    for number in range(10_000):
        queue.add(f"initial-{number}", Priority.LOW)
    async with background(consume(queue, reconcile, seconds=26, workers=2)):
        for second in (5, 15, 25):
            await asyncio.sleep(second - loop_time())
            queue.add(f"transition-{second}", Priority.HIGH)
        await asyncio.sleep(0.5)
    early, middle, late = transitions
    assert 5 <= early < 5.1
    assert 15 <= middle < 15.1
    assert 25 <= late < 25.1


async def test_d2_each_low_key_is_processed_within_30_s_under_saturation(
    queue: Queue,
) -> None:
    served: dict[str, float] = {}
    added: dict[str, float] = {}

    async def reconcile(key: str) -> None:
        await asyncio.sleep(0.1)
        served[key] = loop_time()

    async def saturate() -> None:
        for second in range(600):
            for number in range(30):  # three times what two workers can process
                queue.add(f"high-{second}-{number}", Priority.HIGH)
            for number in range(2):  # less than an eighth of that
                key = f"low-{second}-{number}"
                queue.add(key, Priority.LOW)
                added[key] = loop_time()
            await asyncio.sleep(1)

    async with background(saturate()):
        await consume(queue, reconcile, seconds=640, workers=2)
    assert added.keys() <= served.keys()
    assert max(served[key] - at for key, at in added.items()) < 30


async def test_metrics_show_active_workers_and_their_maximum(queue: Queue) -> None:
    async def look(_key: str) -> None:
        await asyncio.sleep(1)

    queue.add("a")
    queue.add("b")
    async with background(consume(queue, look, seconds=5, workers=3)):
        await asyncio.sleep(0.5)
        assert metric("controller_runtime_active_workers", controller=NAME) == 2
        assert metric("controller_runtime_max_concurrent_reconciles", controller=NAME) == 3
        assert metric("workqueue_adds_total", controller=NAME, name=NAME) == 2
        await asyncio.sleep(1)
        assert metric("controller_runtime_active_workers", controller=NAME) == 0
    assert metric("controller_runtime_reconcile_time_seconds_count", controller=NAME) >= 2


async def test_one_slow_reconcile_a_minute_is_logged(queue: Queue, logged: LogCapture) -> None:
    async def wait(_key: str) -> None:
        await asyncio.sleep(10)

    for key in range(9):
        queue.add(str(key))
    await consume(queue, wait, seconds=100)
    entries = problems(logged)
    assert [entry["seconds"] for entry in entries] == [10.0, 10.0]
    assert [entry["keys_waiting"] for entry in entries] == [8, 2]
