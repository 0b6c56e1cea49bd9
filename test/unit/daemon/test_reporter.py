"""The status of the NodePodProbe, as a whole daemon on a scripted node writes it: when, how often, and what after failures."""

import asyncio
import itertools
import math
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs
from support.background import background
from support.cases import cases
from support.metrics import counted
from support.scripted_node import (
    BAD,
    OK,
    ScriptedNode,
    exec_probe,
    gaps,
    loop_time,
    one,
    pod_of,
    probe_of,
    spec_of,
)

from kruise_probe.api.criteria import Extract, MetricSample
from kruise_probe.api.errors import (
    Conflict,
    ConnectionFailed,
    Forbidden,
    Invalid,
    NotFound,
    TooManyRequests,
)
from kruise_probe.api.node_pod_probe import (
    MAX_OBJECT_BYTES,
    NodePodProbeSpec,
    NodePodProbeStatus,
    stored_bytes,
)
from kruise_probe.api.probe import Probe
from kruise_probe.api.resources import NODE_POD_PROBES
from kruise_probe.api.times import parse_time
from kruise_probe.daemon.probers.judging import criteria_of
from kruise_probe.daemon.probers.prober import UNLIMITED, Output, ProbeResult, Target, success

SPEC = one(exec_probe())


@pytest.fixture
async def node() -> ScriptedNode:
    """A node with one pod; by default its one probe succeeds each second."""
    node = ScriptedNode()
    node.containers.start(age=100)
    node.api.put(SPEC)
    return node


def many(probes: int) -> NodePodProbeSpec:
    """A spec of one pod with so many probes."""
    return spec_of(pod_of(*(probe_of(exec_probe(str(n)), f"m#p{n}") for n in range(probes))))


def write_times(node: ScriptedNode) -> list[float]:
    return [write.at for write in node.api.writes]


def on_writes(node: ScriptedNode, act: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Call `act` before each write of the status."""

    async def fail(kind: str) -> None:
        if kind == "NodePodProbe":
            await act()

    node.api.fail = fail


def failing(node: ScriptedNode, error: Exception) -> list[float]:
    """Refuse all writes of the status; return the list of their times."""
    tries: list[float] = []

    async def fail() -> None:
        tries.append(loop_time())
        raise error

    on_writes(node, fail)
    return tries


@cases(
    "probes pause most",
    at_the_same_time=(500, 0.0, 2),
    within_two_tenths_of_a_second=(50, 0.004, 4),
)
async def test_a30_results_within_a_tenth_of_a_second_are_one_write(
    node: ScriptedNode, probes: int, pause: float, most: int
) -> None:
    async def one_after_the_other(probe: Probe, _: Target) -> ProbeResult:
        assert probe.exec
        (number,) = probe.exec.command or ()
        await asyncio.sleep(int(number) * pause)
        return OK

    node.probers.behaviour = one_after_the_other
    node.api.put(spec_of())
    async with node.daemon():
        node.api.put(many(probes))
        await asyncio.sleep(0.9)
        assert len(node.api.states()) == probes
        assert len(write_times(node)) <= most
        assert all(gap >= 0.1 for gap in gaps(write_times(node)))


async def test_one_write_at_a_time_then_a_pause_then_the_newest_content(
    node: ScriptedNode,
) -> None:
    in_flight = 0

    async def slow() -> None:
        nonlocal in_flight
        in_flight += 1
        assert in_flight == 1
        await asyncio.sleep(3)
        in_flight -= 1

    async with node.daemon(10):
        on_writes(node, slow)
        for result in (BAD, OK, BAD):
            node.probers.answer(result)
            await asyncio.sleep(1)
        await asyncio.sleep(7)
        assert node.api.state() == "Failed"
        assert gaps(write_times(node))[-1] == pytest.approx(3.0 + 3.0, abs=0.1)


async def test_a_patch_of_a_large_spec_ends_beside_results_that_change_all_the_time(
    node: ScriptedNode,
) -> None:
    update_seconds = 0.25
    patch_seconds = 4 * update_seconds

    async def slow() -> None:
        await asyncio.sleep(update_seconds)

    async def flap() -> None:
        for result in itertools.cycle((BAD, OK)):
            node.probers.answer(result)
            await asyncio.sleep(1)

    async with node.daemon(10), background(flap()):
        on_writes(node, slow)
        await asyncio.sleep(10)
        began_at = loop_time()
        writes = -1
        while writes != len(
            node.api.writes
        ):  # the API server begins again if the object has changed
            assert loop_time() < began_at + 25, "the patch conflicts with each update"
            writes = len(node.api.writes)
            await asyncio.sleep(patch_seconds)


async def test_the_first_writes_after_a_quiet_time_are_not_followed_by_a_rest(
    node: ScriptedNode,
) -> None:
    async def slow() -> None:
        await asyncio.sleep(0.25)

    async with node.daemon(30):
        on_writes(node, slow)
        for result in (BAD, OK) * 4:
            node.probers.answer(result)
            await asyncio.sleep(1)
        assert max(gaps(write_times(node)[-8:])) < 1.5


async def test_first_change_of_a_message_is_written_at_once_and_further_ones_wait(
    node: ScriptedNode,
) -> None:
    numbers = itertools.count()

    async def count(_: Probe, __: Target) -> ProbeResult:
        return success(str(next(numbers)))

    async with node.daemon(10):
        written = len(write_times(node))
        node.probers.behaviour = count
        await asyncio.sleep(7.5)
    messages = [
        state.message
        for write in node.api.writes[written:]
        for pod in write.status.pod_probe_statuses or ()
        for state in pod.probe_states or ()
    ]
    assert messages[:4] == ["0", "2", "4", "6"]
    assert gaps(write_times(node)[written:][:4]) == pytest.approx([2.0] * 3, abs=0.1)


async def test_restored_api_server_gets_the_lost_results(node: ScriptedNode) -> None:
    async with node.daemon():
        node.probers.answer(BAD)
        await asyncio.sleep(11)
        backup = node.api.object
        assert backup
        node.probers.answer(OK)
        await asyncio.sleep(2)
        for _ in range(10):
            node.api.put(SPEC)
        await asyncio.sleep(5)
        node.api.restore(backup)
        await asyncio.sleep(3)
        assert node.api.state() == "Succeeded"
        for result, state in ((BAD, "Failed"), (OK, "Succeeded"), (BAD, "Failed")):
            node.probers.answer(result)
            await asyncio.sleep(1.1)
            assert node.api.state() == state
        assert len(write_times(node)) == 7


async def test_a39_messages_are_shortened_for_a_spec_that_grows(node: ScriptedNode) -> None:
    node.probers.answer(success("x" * 1000))
    node.api.put(many(500))
    async with node.daemon(10):
        assert {len(each.message or "") for each in node.api.states().values()} == {1000}
        shortened = counted("kruise_probe_messages_shortened_total")
        large = pod_of(probe_of(exec_probe("x" * 700_000)), name="large")
        node.api.put(NodePodProbeSpec((*(many(500).pod_probes or ()), large)))
        await asyncio.sleep(3)

        assert node.api.object
        assert stored_bytes(node.api.object) < MAX_OBJECT_BYTES
        assert len(node.api.states()) == 501, "that of the large pod, too"
        assert shortened() == 500, "the message of the large pod is short"


@cases(
    "error levels",
    no_connection=(ConnectionFailed("refused"), ["warning", "info"]),
    refused=(Invalid("no"), ["warning", "info"]),
    gone=(NotFound("gone"), ["info"]),
)
async def test_failed_writes_back_off_and_send_the_newest_content(
    node: ScriptedNode, error: Exception, levels: list[str]
) -> None:
    with capture_logs() as logs:
        async with node.daemon():
            writes = counted("kruise_probe_status_writes_total")
            failures = counted("kruise_probe_status_write_failures_total")
            node.probers.answer(BAD)
            tries = failing(node, error)
            await asyncio.sleep(100)
            node.probers.answer(OK)
            await asyncio.sleep(2)
            assert 10 <= len(tries) <= 25
            assert max(gaps(tries)) <= 10
            node.api.fail = None
            await asyncio.sleep(100)
            assert node.api.state() == "Succeeded"
            assert (writes(), failures()) == (len(tries) + 1, len(tries))
    assert [log["log_level"] for log in logs if log["log_level"] != "debug"] == levels


async def test_a_message_whose_write_fails_is_written_with_the_next_try(node: ScriptedNode) -> None:
    faults = [ConnectionFailed("refused")]

    async def fail_once() -> None:
        if faults:
            raise faults.pop()

    async with node.daemon(10):
        on_writes(node, fail_once)
        node.probers.answer(success("two"))
        await asyncio.sleep(2.3)
        assert (faults, node.api.message()) == ([], "two")


@pytest.mark.parametrize(("wish", "waited"), [(20.0, 20.0), (86_400.0, 60.0)])
async def test_retry_after_is_honoured_up_to_a_minute(
    node: ScriptedNode, wish: float, waited: float
) -> None:
    tries = failing(node, TooManyRequests("slow down", retry_after_seconds=wish))
    async with node.daemon():
        await asyncio.sleep(10 + 2.5 * waited)
    assert len(gaps(tries)) >= 2
    assert all(waited <= gap <= 1.2 * waited + 0.1 for gap in gaps(tries)[:2])


@cases(
    "watch_seconds",
    watch_in_time=0.0,
    watch_late=5.0,
)
async def test_own_writes_in_a_row_do_not_conflict(
    node: ScriptedNode, watch_seconds: float
) -> None:
    """Nor is the late event of an older write an edit of the status."""
    async with node.daemon(10):
        node.api.watch_seconds = watch_seconds
        for result, state in ((BAD, "Failed"), (OK, "Succeeded"), (BAD, "Failed")):
            node.probers.answer(result)
            await asyncio.sleep(1.1)
            assert node.api.state() == state
        await asyncio.sleep(10)
        assert (len(write_times(node)), node.api.conflicts) == (4, 0)


async def test_write_that_conflicts_with_a_new_spec_is_sent_at_once_as_a_patch(
    node: ScriptedNode,
) -> None:
    async with node.daemon(10):
        node.api.forget_handlers()  # The watch has not delivered the manager's write.
        node.api.put(many(2))
        node.probers.answer(BAD)
        await asyncio.sleep(1.1)
        assert node.api.state() == "Failed"
        assert (len(write_times(node)), node.api.conflicts) == (2, 1)


async def test_without_the_right_to_update_results_are_written_as_patches(
    node: ScriptedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def forbidden(*_: object, **__: object) -> None:
        raise Forbidden("cannot update nodepodprobes/status")

    monkeypatch.setattr(node.api, "replace_for_metadata", forbidden)
    async with node.daemon(10):
        assert node.api.state() == "Succeeded"


async def test_without_the_right_to_patch_a_write_that_conflicts_is_an_update_again(
    node: ScriptedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = node.api.replace_for_metadata
    patch = node.api.patch

    async def conflicts_once(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.setattr(node.api, "replace_for_metadata", replace)
        raise Conflict("the object has been modified")

    async def forbidden(resource: Any, *args: Any, **kwargs: Any) -> Any:
        if resource is NODE_POD_PROBES:
            raise Forbidden("cannot patch nodepodprobes/status")
        return await patch(resource, *args, **kwargs)

    with capture_logs() as logs:
        async with node.daemon(10):
            monkeypatch.setattr(node.api, "replace_for_metadata", conflicts_once)
            monkeypatch.setattr(node.api, "patch", forbidden)
            node.probers.answer(BAD)
            await asyncio.sleep(1.5)
            assert node.api.state() == "Failed"
    assert "warning" not in [log["log_level"] for log in logs]


async def test_write_that_hangs_is_cancelled_and_retried(node: ScriptedNode) -> None:
    on_writes(node, asyncio.Event().wait)  # type: ignore[arg-type]  # never returns
    async with node.daemon(15):
        node.api.fail = None
        await asyncio.sleep(10)
        assert node.api.state() == "Succeeded"


@cases("result", state=BAD, message=success("new"))
async def test_change_during_a_refresh_is_written_at_shutdown(
    node: ScriptedNode, result: ProbeResult
) -> None:
    started = asyncio.Event()

    async def hang_once() -> None:
        if not started.is_set():
            started.set()
            await asyncio.Event().wait()

    async with node.daemon(590):
        on_writes(node, hang_once)
        await started.wait()
        node.probers.answer(result)
        await asyncio.sleep(2)
    assert node.api.message() == result.message


async def test_the_first_time_of_a_container_is_written_at_shutdown_if_its_write_has_failed(
    node: ScriptedNode,
) -> None:
    async with node.daemon(10):
        failing(node, ConnectionFailed("refused"))
        node.containers.start()
        await asyncio.sleep(5)
        node.api.fail = None
    written = parse_time(node.api.states()["pod/marker#probe"].last_probe_time)
    assert written is not None
    assert written >= node.containers.starts[-1].replace(microsecond=0)


Meanwhile = Callable[[ScriptedNode], Coroutine[Any, Any, None]]


async def recreate(node: ScriptedNode) -> None:
    node.api.remove()
    node.api.put(SPEC)
    node.api.forget_handlers()  # The watch has reported both already.


async def delete_and_recreate_later(node: ScriptedNode) -> None:
    node.api.remove()
    await asyncio.sleep(1)
    asyncio.get_running_loop().call_later(4, node.api.put, SPEC)


async def edit_by_hand(node: ScriptedNode) -> None:
    await asyncio.sleep(1)  # The watch has reported the write.
    node.api.put(SPEC, NodePodProbeStatus())


@pytest.mark.parametrize("meanwhile", [recreate, delete_and_recreate_later, edit_by_hand])
async def test_what_happens_before_the_response_to_a_write_is_corrected(
    node: ScriptedNode, monkeypatch: pytest.MonkeyPatch, meanwhile: Meanwhile
) -> None:
    replace = node.api.replace_for_metadata

    async def answered_late(*args: Any, **kwargs: Any) -> Any:
        written = await replace(*args, **kwargs)
        monkeypatch.undo()
        await meanwhile(node)
        return written

    monkeypatch.setattr(node.api, "replace_for_metadata", answered_late)
    async with node.daemon(25):
        assert node.api.state() == "Succeeded"
        assert len(write_times(node)) == 2


async def test_own_refreshes_are_up_to_a_twentieth_late(node: ScriptedNode) -> None:
    """So that nodes that started together drift apart."""
    node.api.put(one(exec_probe(period_seconds=10)))
    async with node.daemon():
        await asyncio.sleep(7000)
    between = gaps(write_times(node))
    assert len(between) >= 10
    assert all(599.9 <= each <= 632 for each in between)
    assert len({round(each) for each in between}) > 1


async def test_a_value_that_changes_within_its_step_writes_nothing_but_the_refresh(
    node: ScriptedNode,
) -> None:
    """At the end of a page of 200 KB, for ten minutes."""
    others = b"".join([b'other{n="%05d"} 1\n' % number for number in range(12_000)])
    extract = Extract(metric=MetricSample("queue"), step=5)
    criteria = criteria_of(msgspec.structs.replace(probe_of(exec_probe()), extract=extract))

    async def scrape(_: Probe, __: Target) -> ProbeResult:
        value = 10 + len(node.probers.attempts) % 5
        output = Output(others + b"queue %d\n" % value, is_cut=False)
        return await criteria.judge(output, UNLIMITED, math.inf)

    node.api.put(one(exec_probe(period_seconds=10)))
    node.probers.behaviour = scrape
    async with node.daemon(20):
        assert node.api.message() == "10"
        before = len(node.api.writes)
        await asyncio.sleep(640)
        assert len(node.probers.attempts) > 60
        assert len(node.api.writes) == before + 1
        node.probers.answer(success("15"))
        await asyncio.sleep(60)
        assert node.api.message() == "15"


async def test_a_refresh_without_newer_results_is_tried_again_after_ten_minutes(
    node: ScriptedNode,
) -> None:
    node.api.put(one(exec_probe(period_seconds=3600)))
    async with node.daemon():
        await asyncio.sleep(
            650
        )  # The first refresh, ten minutes after the result, had nothing new.
        node.suspended_seconds = 4000  # The probe runs again.
        await asyncio.sleep(700)
    result, refreshed = write_times(node)[-2:]
    assert result <= 10
    assert 1199.9 <= refreshed - result <= 1262
