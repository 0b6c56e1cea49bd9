"""Events: aggregation, budget, retries and bounds."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs
from support.background import background
from support.cases import cases
from support.metrics import counted
from support.wire import typed

from kruise_probe.api.errors import (
    AlreadyExists,
    ConnectionFailed,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
    ServerError,
    TooManyRequests,
)
from kruise_probe.api.meta import ApiObject, NamespacedName
from kruise_probe.client.request import PatchType
from kruise_probe.runtime.recorder import (
    MAX_SERIES_BYTES,
    WRITERS,
    EventRecorder,
    ObjectReference,
    event_name,
)

BURST = 25
REFILL_SECONDS = 60.0
PENDING = "kruise_probe_events_pending"

POD = ObjectReference("default", "web-0", "u1")
START = datetime(2026, 11, 21, 10, tzinfo=UTC)


def dropped(reason: str) -> Callable[[], float]:
    """How many events are dropped from now on."""
    return counted("kruise_probe_events_dropped_total", reason=reason)


def clock() -> datetime:
    return START + timedelta(seconds=asyncio.get_running_loop().time())


class FakeEvents:
    """Stores events by name; `fault` may raise before anything is stored, `lose_response` after it."""

    def __init__(self) -> None:
        self.stored: dict[str, dict[str, Any]] = {}
        self.writes = 0
        self.fault: Callable[[], None] = lambda: None
        self.lose_response = False
        self.seconds_of: dict[str, float] = {}
        """How long a write takes, by namespace."""
        client: Any = self
        self.recorder = EventRecorder(
            client,
            component="kruise-daemon-podprobe",
            host="n1",
            now=clock,
        )

    def record(
        self,
        reason: str,
        message: str,
        pod: ObjectReference = POD,
        *,
        probe: str | None = None,
        container: str = "",
    ) -> None:
        self.recorder.event(
            pod,
            "Normal",
            reason,
            message,
            container=container,
            probe=probe,
        )

    def failed(self, message: str = "no", probe: str = "m#p") -> None:
        """The recorder gets an event of a probe that failed."""
        self.record("KruiseProbeFailed", message, probe=probe, container="main")

    async def create(self, _: Any, body: bytes, *, namespace: str) -> Any:
        self._count_write()
        await asyncio.sleep(self.seconds_of.get(namespace, 0.0))
        event = msgspec.json.decode(body)
        metadata = event["metadata"]
        name = metadata["name"]
        if name in self.stored:
            raise AlreadyExists(name, reason="AlreadyExists")
        assert metadata["namespace"] == namespace
        self.stored[name] = event
        return self._answer(body)

    async def patch(
        self,
        _: Any,
        key: NamespacedName,
        body: bytes,
        *,
        patch_type: PatchType,
    ) -> Any:
        assert patch_type is PatchType.MERGE
        self._count_write()
        if key.name not in self.stored:
            raise NotFound(key.name, reason="NotFound")
        event = self.stored[key.name]
        event |= msgspec.json.decode(body)
        return self._answer(msgspec.json.encode(event))

    def _count_write(self) -> None:
        self.writes += 1
        self.fault()

    def _answer(self, body: bytes) -> ApiObject:
        if self.lose_response:
            self.lose_response = False
            raise ConnectionFailed("reset")
        return msgspec.json.decode(body, type=ApiObject)

    @property
    def only(self) -> dict[str, Any]:
        (event,) = self.stored.values()
        return event


@pytest.fixture
async def events() -> AsyncIterator[FakeEvents]:
    """Its recorder runs until the end of the test."""
    events = FakeEvents()
    async with background(events.recorder.run()):
        yield events


async def test_first_occurrence_creates_a_complete_event(events: FakeEvents) -> None:
    events.failed("exit 1")
    await events.recorder.flush()

    event = events.only
    assert event["metadata"]["name"].startswith("web-0.")
    assert event["involvedObject"] == typed(
        "Pod",
        namespace="default",
        name="web-0",
        uid="u1",
        fieldPath="spec.containers{main}",
    )
    assert event["source"] == {"component": "kruise-daemon-podprobe", "host": "n1"}
    assert event["type"] == "Normal"
    assert event["reason"] == "KruiseProbeFailed"
    assert event["message"] == "exit 1"
    assert event["count"] == 1
    assert event["firstTimestamp"] == event["lastTimestamp"]


async def test_repeated_event_increments_the_count(events: FakeEvents) -> None:
    """`x2 over 47s` is what kubectl makes of these fields."""
    events.failed("exit 1")
    await asyncio.sleep(47)
    events.failed("exit 2")
    await events.recorder.flush()

    event = events.only
    assert event["count"] == 2
    assert event["message"] == "exit 2"
    assert event["firstTimestamp"] == "2026-11-21T10:00:00Z"
    assert event["lastTimestamp"] == "2026-11-21T10:00:47Z"


async def test_messages_of_one_reason_are_events_of_their_own_up_to_the_limit_of_the_object(
    events: FakeEvents,
) -> None:
    object_limit = dropped("object_limit")
    for number in range(BURST + 5):
        events.record("Scaled", f"now {number}")
        await events.recorder.flush()

    assert [event["count"] for event in events.stored.values()] == [1] * BURST
    assert object_limit() == 5


async def test_pod_reason_and_probe_or_message_identify_a_series(events: FakeEvents) -> None:
    events.failed(probe="m#p")
    events.failed(probe="m#q")
    events.record("KruiseProbeSucceeded", "ok", probe="m#p")
    events.record(
        "KruiseProbeFailed",
        "no",
        POD._replace(uid="u2"),
        probe="m#p",
    )
    for message in ("now 3", "now 5", "now 3"):
        events.record("Scaled", message)
    await events.recorder.flush()

    found = sorted(f"{event['message']} x{event['count']}" for event in events.stored.values())
    assert found == ["no x1", "no x1", "no x1", "now 3 x2", "now 5 x1", "ok x1"]


async def test_recovery_is_recorded_after_a_hundred_failures(events: FakeEvents) -> None:
    for _ in range(100):
        events.failed()
        await asyncio.sleep(1)
    events.record("KruiseProbeSucceeded", "ok", probe="m#p")
    await events.recorder.flush()
    counts = {event["reason"]: event["count"] for event in events.stored.values()}

    assert counts["KruiseProbeSucceeded"] == 1
    assert events.writes <= BURST + 100 / REFILL_SECONDS + 2


async def test_occurrences_over_budget_are_written_later_with_full_count(
    events: FakeEvents,
) -> None:
    for _ in range(100):
        events.failed()
        await asyncio.sleep(0.1)
    within_budget = events.only["count"]
    await asyncio.sleep(60)

    assert within_budget < 100
    assert events.only["count"] == 100


async def test_expired_event_is_created_again_with_its_count(events: FakeEvents) -> None:
    events.failed()
    await events.recorder.flush()
    events.stored.clear()
    events.failed()
    await events.recorder.flush()

    assert events.only["count"] == 2


@cases(
    "error least most",
    no_connection=(ConnectionFailed("refused"), 5, 10),
    server_error=(ServerError("unwell", code=500), 5, 10),
    retry_after=(TooManyRequests("later", retry_after_seconds=20), 20, 24),
)
async def test_transient_error_is_retried_after_a_wait(
    events: FakeEvents,
    error: KubeError,
    least: float,
    most: float,
) -> None:
    tries: list[float] = []

    def fault() -> None:
        tries.append(asyncio.get_running_loop().time())
        if len(tries) == 1:
            raise error

    events.fault = fault
    events.failed()
    await asyncio.sleep(80)

    rejected, written = tries
    assert least <= written - rejected <= most + 0.1
    assert events.only["count"] == 1


async def test_event_whose_response_was_lost_is_not_created_twice(events: FakeEvents) -> None:
    events.lose_response = True
    events.failed()
    await asyncio.sleep(20)
    assert events.only["count"] == 1
    assert events.writes == 3, "created, exists already, patched"


async def test_event_without_response_is_dropped_after_12_tries(events: FakeEvents) -> None:
    def refuse() -> None:
        raise ConnectionFailed("refused")

    events.fault = refuse
    without_response = dropped("no_answer")
    for number in (1, 2):
        events.failed()
        await asyncio.sleep(200)
        assert events.writes == 12 * number
        assert without_response() == number
    events.fault = lambda: None
    events.failed()
    await events.recorder.flush()

    assert events.only["count"] == 3


async def test_occurrence_during_a_write_is_written_next(events: FakeEvents) -> None:
    def occur_again() -> None:
        if events.writes == 1:
            events.failed("again")

    events.fault = occur_again
    events.failed("once")
    await asyncio.sleep(1)

    assert events.only["count"] == 2
    assert events.only["message"] == "again"
    assert events.writes == 2


async def test_rejection_is_one_warning_for_each_namespace_and_status(events: FakeEvents) -> None:
    errors: list[KubeError] = [
        Forbidden("no right"),
        Forbidden("no right"),
        Invalid("too long"),
        NotFound("because it is being terminated"),
    ]

    def refuse() -> None:
        raise errors[(events.writes - 1) % len(errors)]

    events.fault = refuse
    refused = dropped("refused")
    with capture_logs() as logs:
        for namespace in ("default", "other"):
            pod = POD._replace(namespace=namespace)
            for number in range(len(errors)):
                events.record(
                    "Seen",
                    "hello",
                    pod,
                    probe=f"{namespace}#{number}",
                )
            await events.recorder.flush()

    assert refused() == 8
    levels = [log["log_level"] for log in logs]
    assert levels == ["warning", "debug", "warning", "debug"] * 2


async def test_events_that_cannot_be_written_use_a_bounded_number_of_bytes() -> None:
    events = FakeEvents()
    queue_full = dropped("queue_full")
    pending = counted(PENDING)
    tracemalloc.start()
    try:
        for number in range(6000):
            events.failed(
                "x" * 1000 + str(number),
                probe=f"m#{number}",
            )
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used < 2 * MAX_SERIES_BYTES
    assert pending() == 6000 - queue_full()


async def test_a_namespace_with_too_many_events_loses_only_its_own(events: FakeEvents) -> None:
    """Its events are written one after the other; those of another namespace do not wait for them."""
    events.seconds_of["default"] = 0.02
    queue_full = dropped("queue_full")
    for number in range(3000):
        events.failed("x" * 1000, probe=f"before#{number}")
    quiet = POD._replace(namespace="quiet", uid="u2")
    for number in range(12):
        events.record("Conflict", str(number), quiet)
    for number in range(3000):
        events.failed("x" * 1000, probe=f"after#{number}")
    await asyncio.sleep(1)
    written = [event["metadata"]["namespace"] for event in events.stored.values()]
    assert written.count("quiet") == 12
    assert written.count("default") == 49
    assert queue_full() > 1000


async def test_a_webhook_that_holds_the_events_of_a_namespace_delays_no_other(
    events: FakeEvents,
) -> None:
    for number in range(WRITERS - 1):
        events.seconds_of[f"slow-{number}"] = 10.0
        for pod in range(5):
            slow = POD._replace(namespace=f"slow-{number}", uid=f"u{pod}")
            events.record("Seen", "hello", slow)
    await asyncio.sleep(1)
    events.failed()
    await asyncio.sleep(0.1)
    assert events.only["metadata"]["namespace"] == "default"
    await asyncio.sleep(60)
    assert len(events.stored) == 1 + 5 * (WRITERS - 1)


@pytest.mark.parametrize("pod", ["web-0", "p" * 253, "a" * 230 + "." + "b" * 22])
def test_event_name_is_valid_for_any_pod_name(pod: str) -> None:
    name = event_name(pod, START, 70_000)
    stem, _, suffix = name.rpartition(".")

    microseconds = int(suffix[:-4], 16)

    assert len(name) <= 253
    assert pod.startswith(stem)
    assert not stem.endswith((".", "-"))
    assert microseconds == START.timestamp() * 1_000_000
    assert name != event_name(pod, START, 70_001)


async def test_series_that_wait_for_their_budget_drop_no_event_of_others(
    events: FakeEvents,
) -> None:
    queue_full = dropped("queue_full")
    for _ in range(BURST + 5):
        for number in range(1_000):
            events.failed(probe=f"flapping#{number}")
        await asyncio.sleep(1)
    events.failed(probe="other#p", message="one transition")
    await asyncio.sleep(1)
    assert queue_full() == 0
    messages = [event["message"] for event in events.stored.values()]
    assert messages.count("one transition") == 1
