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
    NodePodProbeStatus,
    PodProbe,
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


def many(probes: int) -> PodProbe:
    """A pod with `probes` probes; each command is its number."""
    numbers = range(probes)
    return pod_of(*(probe_of(exec_probe(str(number)), f"m#p{number}") for number in numbers))


def write_times(node: ScriptedNode) -> list[float]:
    return [write.at for write in node.api.writes]


async def answer(node: ScriptedNode, result: ProbeResult, seconds: float) -> None:
    """Let every attempt from now on have this result, and wait."""
    node.probers.answer(result)
    await asyncio.sleep(seconds)


async def assert_three_flips_are_written(node: ScriptedNode) -> None:
    """Let the state change three times; each change must be written within 1.1 s."""
    for result, state in ((BAD, "Failed"), (OK, "Succeeded"), (BAD, "Failed")):
        await answer(node, result, 1.1)
        assert node.api.state() == state


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
    node: ScriptedNode,
    probes: int,
    pause: float,
    most: int,
) -> None:
    async def one_after_the_other(probe: Probe, _: Target) -> ProbeResult:
        assert probe.exec
        (number,) = probe.exec.command or ()
        await asyncio.sleep(int(number) * pause)
        return OK

    node.probers.behaviour = one_after_the_other
    node.api.put(spec_of())
    async with node.daemon():
        node.api.put(spec_of(many(probes)))
        await asyncio.sleep(0.9)
        assert len(node.api.states()) == probes
        times = write_times(node)
        assert len(times) <= most
        assert all(gap >= 0.1 for gap in gaps(times))


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
            await answer(node, result, 1)
        await asyncio.sleep(7)
        assert node.api.state() == "Failed"
        assert gaps(write_times(node))[-1] == pytest.approx(3.0 + 3.0, abs=0.1)


async def test_a_patch_of_a_large_spec_ends_beside_results_that_change_all_the_time(
    node: ScriptedNode,
) -> None:
    update_seconds = 0.25
    patch_seconds = 4 * update_seconds

    async def flap() -> None:
        for result in itertools.cycle((BAD, OK)):
            await answer(node, result, 1)

    async with node.daemon(10), background(flap()):
        on_writes(node, lambda: asyncio.sleep(update_seconds))
        await asyncio.sleep(10)
        began_at = loop_time()
        writes = -1
        # The API server begins again if the object has changed.
        while writes != len(node.api.writes):
            assert loop_time() < began_at + 25, "the patch conflicts with each update"
            writes = len(node.api.writes)
            await asyncio.sleep(patch_seconds)


async def test_the_first_writes_after_a_quiet_time_are_not_followed_by_a_rest(
    node: ScriptedNode,
) -> None:
    async with node.daemon(30):
        on_writes(node, lambda: asyncio.sleep(0.25))
        for result in (BAD, OK) * 4:
            await answer(node, result, 1)
        assert max(gaps(write_times(node)[-8:])) < 1.5


async def test_first_change_of_a_message_is_written_at_once_and_further_ones_wait(
    node: ScriptedNode,
) -> None:
    numbers = itertools.count()

    async def count(*_: object) -> ProbeResult:
        return success(str(next(numbers)))

    async with node.daemon(10):
        node.api.writes.clear()
        node.probers.behaviour = count
        await asyncio.sleep(7.5)
    messages = []
    for write in node.api.writes[:4]:
        (pod,) = write.status.pod_probe_statuses or ()
        (state,) = pod.probe_states or ()
        messages.append(state.message)
    assert messages == ["0", "2", "4", "6"]
    assert gaps(write_times(node)[:4]) == pytest.approx([2.0] * 3, abs=0.1)


async def test_restored_api_server_gets_the_lost_results(node: ScriptedNode) -> None:
    async with node.daemon():
        await answer(node, BAD, 11)
        backup = node.api.object
        assert backup
        await answer(node, OK, 2)
        for _ in range(10):
            node.api.put(SPEC)
        await asyncio.sleep(5)
        node.api.restore(backup)
        await asyncio.sleep(3)
        assert node.api.state() == "Succeeded"
        await assert_three_flips_are_written(node)
        assert len(node.api.writes) == 7


async def test_a39_messages_are_shortened_for_a_spec_that_grows(node: ScriptedNode) -> None:
    node.probers.answer(success("x" * 1000))
    node.api.put(spec_of(many(500)))
    async with node.daemon(10):
        assert {len(state.message or "") for state in node.api.states().values()} == {1000}
        shortened = counted("kruise_probe_messages_shortened_total")
        large = pod_of(
            probe_of(exec_probe("x" * 700_000)),
            name="large",
        )
        node.api.put(spec_of(many(500), large))
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
            await answer(node, OK, 2)
            assert 10 <= len(tries) <= 25
            assert max(gaps(tries)) <= 10
            node.api.fail = None
            await asyncio.sleep(100)
            assert node.api.state() == "Succeeded"
            assert writes() == len(tries) + 1
            assert failures() == len(tries)
    found = [log["log_level"] for log in logs]
    assert [level for level in found if level != "debug"] == levels


async def test_a_message_whose_write_fails_is_written_with_the_next_try(node: ScriptedNode) -> None:
    faults = [ConnectionFailed("refused")]

    async def fail_once() -> None:
        if faults:
            raise faults.pop()

    async with node.daemon(10):
        on_writes(node, fail_once)
        await answer(node, success("two"), 2.3)
        assert not faults
        assert node.api.message() == "two"


@pytest.mark.parametrize(("wish", "waited"), [(20.0, 20.0), (86_400.0, 60.0)])
async def test_retry_after_is_honoured_up_to_a_minute(
    node: ScriptedNode, wish: float, waited: float
) -> None:
    tries = failing(node, TooManyRequests("slow down", retry_after_seconds=wish))
    async with node.daemon():
        await asyncio.sleep(10 + 2.5 * waited)
    first, second, *_ = gaps(tries)
    for pause in (first, second):
        assert waited <= pause <= 1.2 * waited + 0.1


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
        await assert_three_flips_are_written(node)
        await asyncio.sleep(10)
        assert len(node.api.writes) == 4
        assert node.api.conflicts == 0


async def test_write_that_conflicts_with_a_new_spec_is_sent_at_once_as_a_patch(
    node: ScriptedNode,
) -> None:
    async with node.daemon(10):
        node.api.forget_handlers()  # The watch has not delivered the manager's write.
        node.api.put(spec_of(many(2)))
        await answer(node, BAD, 1.1)
        assert node.api.state() == "Failed"
        assert len(node.api.writes) == 2
        assert node.api.conflicts == 1


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
            await answer(node, BAD, 1.5)
            assert node.api.state() == "Failed"
    assert "warning" not in [log["log_level"] for log in logs]


async def test_write_that_hangs_is_cancelled_and_retried(node: ScriptedNode) -> None:
    on_writes(node, lambda: asyncio.sleep(3600))
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
        await answer(node, result, 2)
    assert node.api.message() == result.message


async def test_the_first_time_of_a_container_is_written_at_shutdown_if_its_write_has_failed(
    node: ScriptedNode,
) -> None:
    async with node.daemon(10):
        failing(node, ConnectionFailed("refused"))
        node.containers.start()
        await asyncio.sleep(5)
        node.api.fail = None
    state = node.api.states()["pod/marker#probe"]
    written = parse_time(state.last_probe_time)
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
        assert len(node.api.writes) == 2


async def test_own_refreshes_are_up_to_a_twentieth_late(node: ScriptedNode) -> None:
    """So that nodes that started together drift apart."""
    node.api.put(one(exec_probe(period_seconds=10)))
    async with node.daemon():
        await asyncio.sleep(7000)
    between = gaps(write_times(node))
    assert len(between) >= 10
    assert all(599.9 <= seconds <= 632 for seconds in between)
    assert len({round(seconds) for seconds in between}) > 1


async def test_a_value_that_changes_within_its_step_writes_nothing_but_the_refresh(
    node: ScriptedNode,
) -> None:
    """At the end of a page of 200 KB, for ten minutes."""
    others = b"".join([b'other{n="%05d"} 1\n' % number for number in range(12_000)])
    extract = Extract(metric=MetricSample("queue"), step=5)
    entry = msgspec.structs.replace(probe_of(exec_probe()), extract=extract)
    criteria = criteria_of(entry)

    async def scrape(*_: object) -> ProbeResult:
        value = 10 + len(node.probers.attempts) % 5
        output = Output(others + b"queue %d\n" % value, is_cut=False)
        return await criteria.judge(output, UNLIMITED, math.inf)

    node.api.put(one(exec_probe(period_seconds=10)))
    node.probers.behaviour = scrape
    async with node.daemon(20):
        assert node.api.message() == "10"
        node.api.writes.clear()
        await asyncio.sleep(640)
        assert len(node.probers.attempts) > 60
        assert len(node.api.writes) == 1
        await answer(node, success("15"), 60)
        assert node.api.message() == "15"


async def test_a_refresh_without_newer_results_is_tried_again_after_ten_minutes(
    node: ScriptedNode,
) -> None:
    node.api.put(one(exec_probe(period_seconds=3600)))
    async with node.daemon():
        # The first refresh, ten minutes after the result, has nothing new.
        await asyncio.sleep(650)
        node.suspended_seconds = 4000  # The probe runs again.
        await asyncio.sleep(700)
    result, refreshed = write_times(node)[-2:]
    assert result <= 10
    assert 1199.9 <= refreshed - result <= 1262
