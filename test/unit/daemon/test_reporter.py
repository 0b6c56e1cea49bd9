import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from prometheus_client import Counter
from structlog.testing import capture_logs
from support.scripted_node import (
    EPOCH,
    NODE,
    FakeNodeApi,
    exec_probe,
    gaps,
    loop_time,
    pod_of,
    probe_of,
    settle,
    spec_of,
    wall_clock,
)

from kruise_probe.api.errors import ConnectionFailed, Forbidden, Invalid, NotFound, TooManyRequests
from kruise_probe.api.keys import ProbeKey, ProbeName
from kruise_probe.api.times import format_time
from kruise_probe.api.v1alpha1 import (
    MAX_OBJECT_BYTES,
    ContainerProbeState,
    NodePodProbe,
    NodePodProbeSpec,
    NodePodProbeStatus,
    PodProbeStatus,
    stored_bytes,
)
from kruise_probe.daemon import metrics
from kruise_probe.daemon.diff import DesiredProbe, desired_probes
from kruise_probe.daemon.reporter import Reporter


class Reporting:
    """A reporter, its results and its API server."""

    def __init__(self, *, probes: int = 1, message_sync_seconds: float = 2.0) -> None:
        self.api = FakeNodeApi()
        self.reporter = Reporter(
            client=self.api,
            node_name=NODE,
            message_sync_seconds=message_sync_seconds,
            refresh_seconds=600.0,
            on_transition=lambda *_: None,
        )
        self.spec = spec_with(probes)
        self.api.add_event_handler(self)

    def on_add(self, obj: object, is_initial: bool) -> None:
        self.observe(self.api.object)

    def on_update(self, old: object, new: object) -> None:
        self.observe(self.api.object)

    def on_delete(self, last_known: object) -> None:
        self.observe(None)

    def observe(self, newest: NodePodProbe | None) -> None:
        self.reporter.observe(newest, desired_probes(newest.spec if newest else None))

    def put(self, number: int, state: str = "Succeeded", message: str = "", id: str = "c1") -> None:
        old = self.reporter.results.get(key(number))
        now = format_time(wall_clock())
        moved = old.last_transition_time if old and old.state == state else now
        self.reporter.put(
            desired(number),
            ContainerProbeState(f"m#p{number}", state, now, moved, message or None, id, "h1"),
        )

    def put_again(self, number: int) -> None:
        """The same result, probed once more."""
        old = self.reporter.results[key(number)]
        self.reporter.put(
            desired(number), msgspec.structs.replace(old, last_probe_time=format_time(wall_clock()))
        )

    @property
    def write_times(self) -> list[float]:
        return [write.at for write in self.api.writes]


def key(number: int) -> ProbeKey:
    return ProbeKey("uid-pod", "main", ProbeName("m", f"p{number}"))


def desired(number: int) -> DesiredProbe:
    return desired_probes(spec_with(number + 1))[key(number)]


def spec_with(probes: int) -> NodePodProbeSpec:
    return spec_of(pod_of(*(probe_of(exec_probe(), f"m#p{n}") for n in range(probes))))


def counted(metric: Counter) -> Callable[[], float]:
    """How much the counter has grown since now."""

    def value() -> float:
        (family,) = metric.collect()
        return next(each.value for each in family.samples if each.name.endswith("_total"))

    before = value()
    return lambda: value() - before


@asynccontextmanager
async def reporting(
    *,
    probes: int = 1,
    message_sync_seconds: float = 2.0,
    status: NodePodProbeStatus | None = None,
) -> AsyncIterator[Reporting]:
    reporting = Reporting(probes=probes, message_sync_seconds=message_sync_seconds)
    task = asyncio.create_task(reporting.reporter.run())
    reporting.api.put(reporting.spec, status)
    await settle()
    try:
        yield reporting
    finally:
        task.cancel()
        await asyncio.wait([task])


@pytest.mark.parametrize(
    ("probes", "pause", "most"),
    [
        pytest.param(500, 0.0, 1, id="at-the-same-time"),
        pytest.param(50, 0.004, 4, id="within-two-tenths-of-a-second"),
    ],
)
async def test_a30_results_within_a_tenth_of_a_second_are_one_write(
    probes: int, pause: float, most: int
) -> None:
    async with reporting(probes=probes) as r:
        for number in range(probes):
            r.put(number)
            if pause:
                await asyncio.sleep(pause)
        await asyncio.sleep(1)
        assert len(r.api.states()) == probes
        assert len(r.write_times) <= most
        assert all(gap >= 0.1 for gap in gaps(r.write_times))


async def test_one_write_at_a_time_and_then_the_newest_content() -> None:
    async with reporting(probes=2) as r:
        under_way = 0

        async def slow(_: str) -> None:
            nonlocal under_way
            under_way += 1
            assert under_way == 1
            await asyncio.sleep(3)
            under_way -= 1

        r.api.fail = slow
        r.put(0, "Failed")
        await asyncio.sleep(1)
        r.put(0, "Succeeded")
        r.put(1, "Failed")
        await asyncio.sleep(6)
        assert [r.api.state(f"pod/m#p{n}") for n in (0, 1)] == ["Succeeded", "Failed"]
        assert len(r.write_times) == 2


async def test_first_change_of_a_message_is_written_at_once_and_further_ones_wait() -> None:
    async with reporting() as r:
        r.put(0, message="one")
        await asyncio.sleep(1)
        r.put(0, message="two")
        await settle()
        assert r.api.message("pod/m#p0") == "two"
        await asyncio.sleep(1)
        r.put(0, message="three")
        await asyncio.sleep(0.5)
        r.put(0, message="four")
        await asyncio.sleep(0.4)
        assert r.api.message("pod/m#p0") == "two"
        await asyncio.sleep(0.2)
        assert r.api.message("pod/m#p0") == "four"
        assert len(r.write_times) == 3


def stranger(name: str = "m#stranger") -> NodePodProbeStatus:
    state = ContainerProbeState(name, "Failed", "2026-11-21T11:59:00Z")
    return NodePodProbeStatus((PodProbeStatus("pod", "default", "uid-pod", (state,)),))


async def test_states_without_a_probe_are_dropped_at_the_start() -> None:
    async with reporting(status=stranger()) as r:
        await asyncio.sleep(3)
        assert r.api.states() == {}
        assert len(r.write_times) == 1


async def test_event_of_an_older_write_is_no_edit() -> None:
    async with reporting() as r:
        r.put(0, "Failed")
        await settle()
        old = r.api.object
        await asyncio.sleep(1)
        r.api.forget_handlers()  # The watch lags behind from here on.
        r.put(0, "Succeeded")
        await settle()
        r.observe(old)
        await asyncio.sleep(10)
        assert len(r.write_times) == 2
        assert r.api.state("pod/m#p0") == "Succeeded"


async def test_restored_api_server_gets_the_lost_results() -> None:
    async with reporting() as r:
        r.put(0, "Failed")
        await asyncio.sleep(1)
        backup = r.api.object
        assert backup
        r.put(0, "Succeeded")
        await asyncio.sleep(1)
        for _ in range(10):
            r.api.put(r.spec)
        await asyncio.sleep(5)
        r.api.restore(backup)
        await asyncio.sleep(3)
        assert r.api.state("pod/m#p0") == "Succeeded"
        for state in ("Failed", "Succeeded", "Failed"):
            r.put(0, state)
            await asyncio.sleep(1)
            assert r.api.state("pod/m#p0") == state
        assert len(r.write_times) == 6


async def test_a39_messages_are_shortened_for_a_spec_that_grows() -> None:
    async with reporting(probes=500) as r:
        for number in range(500):
            r.put(number, message="x" * 1000)
        await asyncio.sleep(1)
        assert {len(each.message or "") for each in r.api.states().values()} == {1000}
        shortened = counted(metrics.MESSAGES_SHORTENED)
        large = pod_of(probe_of(exec_probe("x" * 700_000)), name="large")
        r.api.put(NodePodProbeSpec((*(r.spec.pod_probes or ()), large)))
        await asyncio.sleep(3)

        assert r.api.object
        assert stored_bytes(r.api.object) < MAX_OBJECT_BYTES
        assert len(r.api.states()) == 500
        assert shortened() == 500


@pytest.mark.parametrize(
    ("error", "levels"),
    [
        pytest.param(ConnectionFailed("refused"), ["warning", "info"], id="no-connection"),
        pytest.param(Invalid("no"), ["warning", "info"], id="refused"),
        pytest.param(NotFound("gone"), ["info"], id="gone"),
    ],
)
async def test_failed_writes_back_off_and_send_the_newest_content(
    error: Exception, levels: list[str]
) -> None:
    with capture_logs() as logs:
        async with reporting() as r:
            writes = counted(metrics.STATUS_WRITES)
            failures = counted(metrics.STATUS_WRITE_FAILURES)
            tries: list[float] = []

            async def fail(_: str) -> None:
                tries.append(loop_time())
                raise error

            r.api.fail = fail
            r.put(0, "Failed")
            await asyncio.sleep(100)
            r.put(0, "Succeeded")
            assert 10 <= len(tries) <= 25
            assert max(gaps(tries)) <= 10
            r.api.fail = None
            await asyncio.sleep(100)
            assert r.api.state("pod/m#p0") == "Succeeded"
            assert len(r.write_times) == 1
            assert (writes(), failures()) == (len(tries) + 1, len(tries))
    assert [log["log_level"] for log in logs if log["log_level"] != "debug"] == levels


async def test_a_message_whose_write_fails_is_written_with_the_next_try() -> None:
    async with reporting() as r:
        r.put(0, message="one")
        await asyncio.sleep(5)
        faults = [ConnectionFailed("refused")]

        async def fail(_: str) -> None:
            if faults:
                raise faults.pop()

        r.api.fail = fail
        r.put(0, message="two")
        await asyncio.sleep(2.3)
        assert (faults, r.api.message("pod/m#p0")) == ([], "two")


@pytest.mark.parametrize(("wish", "waited"), [(20.0, 20.0), (86_400.0, 60.0)])
async def test_retry_after_is_honoured_up_to_a_minute(wish: float, waited: float) -> None:
    async with reporting() as r:
        tries: list[float] = []

        async def fail(_: str) -> None:
            tries.append(loop_time())
            raise TooManyRequests("slow down", retry_after_seconds=wish)

        r.api.fail = fail
        r.put(0)
        await asyncio.sleep(2.5 * waited)
        assert len(gaps(tries)) == 2
        assert all(waited <= gap <= 1.2 * waited + 0.1 for gap in gaps(tries))


@pytest.mark.parametrize(
    "watch_seconds", [pytest.param(0.0, id="watch-in-time"), pytest.param(5.0, id="watch-late")]
)
async def test_own_writes_in_a_row_do_not_conflict(watch_seconds: float) -> None:
    async with reporting() as r:
        r.api.watch_seconds = watch_seconds
        for state in ("Failed", "Succeeded", "Failed"):
            r.put(0, state)
            await asyncio.sleep(1)
            assert r.api.state("pod/m#p0") == state
        assert (len(r.write_times), r.api.conflicts) == (3, 0)


async def test_write_that_conflicts_with_a_new_spec_is_sent_at_once_as_a_patch() -> None:
    async with reporting() as r:
        r.put(0, "Failed")
        await asyncio.sleep(1)
        r.api.forget_handlers()  # The watch has not delivered the manager's write.
        r.api.put(spec_with(2))
        r.put(0, "Succeeded")
        await settle()
        assert r.api.state("pod/m#p0") == "Succeeded"
        assert (len(r.write_times), r.api.conflicts) == (2, 1)


async def test_without_the_right_to_update_results_are_written_as_patches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def forbidden(*_: object, **__: object) -> None:
        raise Forbidden("cannot update nodepodprobes/status")

    async with reporting() as r:
        monkeypatch.setattr(r.api, "replace_for_metadata", forbidden)
        r.put(0)
        await settle()
        assert r.api.state("pod/m#p0") == "Succeeded"


async def test_write_that_hangs_is_cancelled_and_retried() -> None:
    async with reporting() as r:
        hanging = True

        async def hang(_: str) -> None:
            if hanging:
                await asyncio.Event().wait()

        r.api.fail = hang
        r.put(0)
        await asyncio.sleep(5)
        hanging = False
        await asyncio.sleep(10)
        assert r.api.state("pod/m#p0") == "Succeeded"


@pytest.mark.parametrize(("state", "message"), [("Failed", ""), ("Succeeded", "new")])
async def test_change_during_a_refresh_is_written_at_shutdown(state: str, message: str) -> None:
    async with reporting() as r:
        started = asyncio.Event()

        async def hang_once(_: str) -> None:
            if not started.is_set():
                started.set()
                await asyncio.Event().wait()

        r.put(0)
        await asyncio.sleep(590)
        r.put_again(0)
        r.api.fail = hang_once
        await started.wait()
        r.put(0, state, message)
    assert (r.api.state("pod/m#p0"), r.api.message("pod/m#p0")) == (state, message)


Meanwhile = Callable[[Reporting], Coroutine[Any, Any, None]]


async def recreate(r: Reporting) -> None:
    r.api.delete()
    r.api.put(r.spec)
    r.api.forget_handlers()  # The watch has reported both already.


async def delete_and_recreate_later(r: Reporting) -> None:
    r.api.delete()
    await asyncio.sleep(1)
    asyncio.get_running_loop().call_later(4, r.api.put, r.spec)


async def edit_by_hand(r: Reporting) -> None:
    await asyncio.sleep(1)  # The watch has reported the write.
    r.api.put(r.spec, NodePodProbeStatus())


@pytest.mark.parametrize("meanwhile", [recreate, delete_and_recreate_later, edit_by_hand])
async def test_what_happens_before_the_response_to_a_write_is_corrected(
    monkeypatch: pytest.MonkeyPatch, meanwhile: Meanwhile
) -> None:
    async with reporting() as r:
        replace = r.api.replace_for_metadata

        async def answered_late(*args: Any, **kwargs: Any) -> Any:
            written = await replace(*args, **kwargs)
            monkeypatch.undo()
            await meanwhile(r)
            return written

        monkeypatch.setattr(r.api, "replace_for_metadata", answered_late)
        r.put(0)
        await asyncio.sleep(10)
        assert r.api.state("pod/m#p0") == "Succeeded"
        assert len(r.write_times) == 2


async def test_status_of_an_earlier_daemon_is_refreshed_a_minute_after_the_start() -> None:
    state = ContainerProbeState("m#p0", "Succeeded", format_time(EPOCH))
    kept = NodePodProbeStatus((PodProbeStatus("pod", "default", "uid-pod", (state,)),))
    async with reporting(status=kept) as r:
        r.reporter.results[key(0)] = state
        for _ in range(650):
            r.put_again(0)
            await asyncio.sleep(1)
        assert r.write_times == [pytest.approx(61.5, abs=2)]


async def test_own_refreshes_are_up_to_a_twentieth_late() -> None:
    """So that nodes that started together drift apart."""
    async with reporting() as r:
        r.put(0)
        for _ in range(7000):
            r.put_again(0)
            await asyncio.sleep(1)
        assert len(r.write_times) >= 11
        between = gaps(r.write_times)
        assert all(599.9 <= each <= 632 for each in between)
        assert len({round(each) for each in between}) > 1


async def test_result_without_new_attempts_is_not_refreshed() -> None:
    async with reporting() as r:
        r.put(0)
        await asyncio.sleep(2000)
        assert len(r.write_times) == 1
