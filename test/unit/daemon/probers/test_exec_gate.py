import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from prometheus_client import CollectorRegistry
from support.background import background
from support.callbacks import no_failed_callback
from support.fake_runtime import ExecCall, ScriptedRuntime, hang, refuse, succeed

from kruise_probe.daemon.cri.runtime import (
    ExecImpossible,
    ExecResult,
    ExecTimeout,
    NotSupported,
    RuntimeUnavailable,
    RuntimeVersion,
)
from kruise_probe.daemon.metrics import ExecGateCollector
from kruise_probe.daemon.probers.exec_gate import ExecGate, ExecKey
from kruise_probe.daemon.probers.exec_shares import Tenant

JOIN_SECONDS = 0.005


@pytest.fixture
def runtime() -> ScriptedRuntime:
    scripted = ScriptedRuntime()
    scripted.start()
    return scripted


@asynccontextmanager
async def gate_of(runtime: ScriptedRuntime, *, places: int = 16) -> AsyncIterator[ExecGate]:
    gate = ExecGate(runtime, max_concurrent=places)
    with no_failed_callback():
        async with background(gate.run()):
            yield gate


POD = Tenant("default", "uid-1")


class WaitingProbe:
    def __init__(self, period_seconds: float = 1) -> None:
        self.period_seconds = period_seconds


async def run(
    gate: ExecGate, key: ExecKey, *, timeout_seconds: float, tenant: Tenant = POD
) -> ExecResult:
    """Runs the command for a probe of its own."""
    return await gate.execute(
        key, tenant=tenant, timeout_seconds=timeout_seconds, waiter=WaitingProbe()
    )


def key(*command: str, period: float = 1, container: str = "container-0") -> ExecKey:
    return ExecKey(container, command, period)


async def test_no_more_calls_than_places_are_in_flight(
    runtime: ScriptedRuntime, looptime: float
) -> None:
    async with gate_of(runtime, places=4) as gate, asyncio.TaskGroup() as waiters:
        for number in range(20):
            runtime.on_exec(str(number), script=succeed(after_seconds=1))
            _ = waiters.create_task(run(gate, key(str(number)), timeout_seconds=3))

    assert runtime.most_in_flight == 4
    assert looptime == pytest.approx(5 + JOIN_SECONDS)


async def test_calls_get_their_place_in_order_of_arrival(runtime: ScriptedRuntime) -> None:
    names = [str(number) for number in range(10)]
    async with gate_of(runtime, places=1) as gate, asyncio.TaskGroup() as waiters:
        for name in names:
            _ = waiters.create_task(run(gate, key(name), timeout_seconds=1))

    assert [call.command for call in runtime.execs] == [(name,) for name in names]


async def test_a_probe_that_joins_a_call_does_not_delay_it(runtime: ScriptedRuntime) -> None:
    names = ["slow", "a", "b", "a"]
    runtime.on_exec("slow", script=succeed(after_seconds=1))
    async with gate_of(runtime, places=1) as gate, asyncio.TaskGroup() as waiters:
        for name in names:
            _ = waiters.create_task(run(gate, key(name), timeout_seconds=3))
            await asyncio.sleep(0.01)

    assert [call.command for call in runtime.execs] == [("slow",), ("a",), ("b",)]


async def test_identical_commands_of_one_tick_are_one_call(runtime: ScriptedRuntime) -> None:
    runtime.on_exec("check", script=succeed(b"x"))
    async with gate_of(runtime) as gate, asyncio.TaskGroup() as waiters:
        tasks = [
            waiters.create_task(run(gate, key("check"), timeout_seconds=timeout))
            for timeout in (1, 5, 3)
        ]

    assert {task.result().stdout for task in tasks} == {b"x"}
    assert [call.timeout_seconds for call in runtime.execs] == [5]
    assert gate.shared == 2


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(key("other"), id="command"),
        pytest.param(key("check", period=2), id="period"),
        pytest.param(key("check", container="container-1"), id="container"),
    ],
)
async def test_different_commands_are_not_shared(runtime: ScriptedRuntime, other: ExecKey) -> None:
    runtime.start("uid-2")
    async with gate_of(runtime) as gate, asyncio.TaskGroup() as waiters:
        _ = waiters.create_task(run(gate, key("check"), timeout_seconds=1))
        _ = waiters.create_task(run(gate, other, timeout_seconds=1))

    assert len(runtime.execs) == 2


async def test_each_waiter_has_its_own_timeout(runtime: ScriptedRuntime, looptime: float) -> None:
    runtime.on_exec("check", script=succeed(b"x", after_seconds=2))

    async def impatient(gate: ExecGate) -> None:
        with pytest.raises(ExecTimeout, match="after 1s"):
            await run(gate, key("check"), timeout_seconds=1)
        assert looptime == pytest.approx(1 + JOIN_SECONDS)

    async with gate_of(runtime) as gate, asyncio.TaskGroup() as waiters:
        _ = waiters.create_task(impatient(gate))
        patient = waiters.create_task(run(gate, key("check"), timeout_seconds=5))

    assert patient.result().stdout == b"x"
    assert len(runtime.execs) == 1


class FrozenRuntime(ScriptedRuntime):
    """Accepts calls and responds to none."""

    async def version(self) -> RuntimeVersion:
        await asyncio.get_running_loop().create_future()
        raise AssertionError("unreachable")


@pytest.mark.parametrize("timeouts", [(1,), (1, 5)], ids=["alone", "shared"])
async def test_command_in_a_hanging_runtime_has_not_timed_out(timeouts: tuple[int, ...]) -> None:
    runtime = FrozenRuntime()
    runtime.start()
    runtime.on_exec("check", script=hang())

    async def waits(gate: ExecGate, timeout_seconds: int) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(RuntimeUnavailable):
            await run(gate, key("check"), timeout_seconds=timeout_seconds)
        assert loop.time() - began <= timeout_seconds + 0.5

    async with gate_of(runtime) as gate, asyncio.TaskGroup() as waiters:
        for timeout_seconds in timeouts:
            _ = waiters.create_task(waits(gate, timeout_seconds))

    assert len(runtime.execs) == 1


async def test_previous_run_in_a_hanging_runtime_has_not_timed_out() -> None:
    runtime = FrozenRuntime()
    runtime.start()
    runtime.on_exec("check", script=hang())

    async def patient(gate: ExecGate) -> None:
        _ = await run(gate, key("check"), timeout_seconds=60)

    async with gate_of(runtime) as gate, background(patient(gate)):
        for _ in range(2):
            with pytest.raises(RuntimeUnavailable):
                await run(gate, key("check"), timeout_seconds=2)


async def test_any_response_proves_that_the_runtime_is_alive(runtime: ScriptedRuntime) -> None:
    runtime.on_exec("check", script=hang())
    runtime.failures["Version"] = NotSupported("unknown method Version")
    async with gate_of(runtime) as gate:
        with pytest.raises(ExecTimeout):
            await run(gate, key("check"), timeout_seconds=1)


async def test_probe_starts_no_second_call_while_its_call_runs_for_others(
    runtime: ScriptedRuntime,
) -> None:
    runtime.on_exec("check", script=hang())

    async def times_out(gate: ExecGate, after_seconds: float) -> None:
        with pytest.raises(ExecTimeout):
            await run(gate, key("check"), timeout_seconds=after_seconds)

    async with gate_of(runtime) as gate, asyncio.TaskGroup() as waiters:
        _ = waiters.create_task(times_out(gate, 10))
        for _ in range(5):
            await times_out(gate, 1)
            await asyncio.sleep(1)

    assert len(runtime.execs) == 1


async def test_slow_run_fails_once(runtime: ScriptedRuntime, looptime: float) -> None:
    runtime.on_exec("check", script=succeed(after_seconds=3))

    async with gate_of(runtime) as gate, asyncio.TaskGroup() as waiters:
        _ = waiters.create_task(run(gate, key("check"), timeout_seconds=5))
        with pytest.raises(ExecTimeout):
            await run(gate, key("check"), timeout_seconds=2)
        runtime.on_exec("check", script=succeed(b"quick"))
        again = await run(gate, key("check"), timeout_seconds=2)

    assert again.stdout == b"quick"
    assert looptime == pytest.approx(3 + 2 * JOIN_SECONDS)
    assert runtime.most_in_flight == 1


async def test_a_previous_run_that_continues_fails_the_next_attempt_at_its_timeout(
    runtime: ScriptedRuntime, looptime: float
) -> None:
    runtime.on_exec("check", script=hang())

    async def patient(gate: ExecGate) -> None:
        _ = await run(gate, key("check"), timeout_seconds=60)

    async with gate_of(runtime) as gate, background(patient(gate)):
        for _ in range(3):
            with pytest.raises(ExecTimeout):
                await run(gate, key("check"), timeout_seconds=2)

    assert looptime == pytest.approx(6 + JOIN_SECONDS)
    assert runtime.most_in_flight == 1


async def test_a_probe_that_is_due_after_the_result_runs_its_command_again(
    runtime: ScriptedRuntime,
) -> None:
    """Also in the pass of the event loop in which the previous run ends."""
    ends: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def script(_: ExecCall) -> ExecResult:
        await ends
        return ExecResult(0, f"run {len(runtime.execs)}".encode(), b"")

    runtime.on_exec("check", script=script)
    async with gate_of(runtime) as gate, asyncio.TaskGroup() as waiters:
        first = waiters.create_task(run(gate, key("check"), timeout_seconds=5))
        await asyncio.sleep(1)
        ends.set_result(None)
        second = waiters.create_task(run(gate, key("check"), timeout_seconds=5))

    assert [first.result().stdout, second.result().stdout] == [b"run 1", b"run 2"]


async def test_a_longer_timeout_does_not_join_a_call_that_ends_sooner(
    runtime: ScriptedRuntime,
) -> None:
    runtime.on_exec("check", script=succeed(after_seconds=0.8))
    async with gate_of(runtime) as gate, asyncio.TaskGroup() as waiters:
        _ = waiters.create_task(run(gate, key("check"), timeout_seconds=1))
        await asyncio.sleep(0.5)
        _ = waiters.create_task(run(gate, key("check"), timeout_seconds=3))

    assert [call.timeout_seconds for call in runtime.execs] == [1, 3]


async def test_the_same_timeout_joins_a_call_that_has_started(runtime: ScriptedRuntime) -> None:
    runtime.on_exec("check", script=succeed(after_seconds=0.8))
    async with gate_of(runtime) as gate, asyncio.TaskGroup() as waiters:
        _ = waiters.create_task(run(gate, key("check"), timeout_seconds=1))
        await asyncio.sleep(0.5)
        _ = waiters.create_task(run(gate, key("check"), timeout_seconds=1))

    assert len(runtime.execs) == 1


async def test_a_replaced_call_ends_without_its_successor(runtime: ScriptedRuntime) -> None:
    """A third probe joins the call of the second, although that of the first has ended meanwhile."""
    runtime.on_exec("check", script=succeed(after_seconds=0.8))
    async with gate_of(runtime) as gate, asyncio.TaskGroup() as waiters:
        _ = waiters.create_task(run(gate, key("check"), timeout_seconds=1))
        await asyncio.sleep(0.5)
        _ = waiters.create_task(run(gate, key("check"), timeout_seconds=3))
        await asyncio.sleep(0.5)
        _ = waiters.create_task(run(gate, key("check"), timeout_seconds=3))

    assert [call.timeout_seconds for call in runtime.execs] == [1, 3]


async def test_a_response_shortly_after_the_timeout_counts() -> None:
    """The runtime ends the command; its response decides, as for kubelet."""

    class LateRuntime(ScriptedRuntime):
        async def exec_sync(self, *_: object, timeout_seconds: float) -> ExecResult:
            await asyncio.sleep(timeout_seconds + 0.3)
            return ExecResult(0, b"late", b"")

    async with gate_of(LateRuntime()) as gate:
        result = await run(gate, key("check"), timeout_seconds=1)
    assert result.stdout == b"late"


@pytest.mark.parametrize("raises", [True, False])
async def test_a_call_that_is_not_cancelled_at_once_stops_no_other(
    runtime: ScriptedRuntime, raises: bool
) -> None:
    async def script(_: ExecCall) -> ExecResult:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            if raises:
                raise ExecImpossible("the stream was closed") from None
        return ExecResult(0, b"", b"")

    runtime.on_exec("check", script=script)
    runtime.on_exec("other", script=succeed(b"fine"))
    async with gate_of(runtime) as gate, asyncio.TaskGroup() as waiters:
        waiter = waiters.create_task(run(gate, key("check"), timeout_seconds=100))
        await asyncio.sleep(1)
        waiter.cancel()
        await asyncio.sleep(1)
        result = await run(gate, key("other"), timeout_seconds=1)
    assert result.stdout == b"fine"


async def test_without_the_gate_no_command_is_queued(runtime: ScriptedRuntime) -> None:
    gate = ExecGate(runtime, max_concurrent=1)
    with pytest.raises(RuntimeError, match=r"ExecGate.run is not running"):
        await run(gate, key("check"), timeout_seconds=1)
    async with background(gate.run()):
        _ = await run(gate, key("check"), timeout_seconds=1)
    with pytest.raises(RuntimeError, match=r"ExecGate.run is not running"):
        await run(gate, key("check"), timeout_seconds=1)


async def test_a_shorter_timeout_joins_a_call_that_has_run_for_less(
    runtime: ScriptedRuntime,
) -> None:
    runtime.on_exec("check", script=succeed(b"x", after_seconds=1))
    async with gate_of(runtime) as gate, asyncio.TaskGroup() as waiters:
        _ = waiters.create_task(run(gate, key("check"), timeout_seconds=5))
        await asyncio.sleep(0.5)
        second = waiters.create_task(run(gate, key("check"), timeout_seconds=2))

    assert second.result().stdout == b"x"
    assert len(runtime.execs) == 1


async def test_call_without_waiters_is_cancelled(runtime: ScriptedRuntime) -> None:
    runtime.on_exec("check", script=hang())
    async with gate_of(runtime) as gate, asyncio.TaskGroup() as waiters:
        first = waiters.create_task(run(gate, key("check"), timeout_seconds=100))
        second = waiters.create_task(run(gate, key("check"), timeout_seconds=100))
        await asyncio.sleep(1)
        first.cancel()
        await asyncio.sleep(1)
        assert gate.in_flight == runtime.in_flight == 1
        second.cancel()
        await asyncio.sleep(1)

        assert gate.in_flight == runtime.in_flight == 0


async def test_a_queued_waiter_can_be_cancelled(runtime: ScriptedRuntime) -> None:
    runtime.on_exec("slow", script=succeed(after_seconds=5))
    async with gate_of(runtime, places=1) as gate, asyncio.TaskGroup() as waiters:
        _ = waiters.create_task(run(gate, key("slow"), timeout_seconds=10))
        await asyncio.sleep(1)
        queued = waiters.create_task(run(gate, key("check"), timeout_seconds=1))
        await asyncio.sleep(1)
        queued.cancel()

    assert [call.command for call in runtime.execs] == [("slow",)]


async def test_a_failure_reaches_every_waiter_and_blocks_no_later_call(
    runtime: ScriptedRuntime,
) -> None:
    runtime.on_exec("check", script=refuse(ExecImpossible("no such file")))

    async def fails(gate: ExecGate) -> None:
        with pytest.raises(ExecImpossible, match="no such file"):
            await run(gate, key("check"), timeout_seconds=1)

    async with gate_of(runtime, places=1) as gate:
        for _ in range(3):
            async with asyncio.TaskGroup() as waiters:
                _ = waiters.create_task(fails(gate))
                _ = waiters.create_task(fails(gate))

    assert len(runtime.execs) == 3


async def test_cancelling_the_gate_cancels_its_calls(runtime: ScriptedRuntime) -> None:
    """Those that run, one that was replaced by a longer one, and one that waits for a place."""
    for command in ("check", "queued"):
        runtime.on_exec(command, script=hang())
    gate = ExecGate(runtime, max_concurrent=2)
    running = asyncio.create_task(gate.run())
    await asyncio.sleep(0)
    waiters: list[asyncio.Task[ExecResult]] = []
    for command, timeout in (("check", 100), ("check", 200), ("queued", 5)):
        waiter = run(gate, key(command), timeout_seconds=timeout)
        waiters.append(asyncio.create_task(waiter))
        await asyncio.sleep(1)

    running.cancel()
    _ = await asyncio.wait([running, *waiters], timeout=1)

    assert running.cancelled()
    assert all(waiter.cancelled() for waiter in waiters)
    assert runtime.in_flight == 0


async def test_a_call_that_has_its_place_does_not_become_long(runtime: ScriptedRuntime) -> None:
    async with gate_of(runtime) as gate, asyncio.TaskGroup() as waiters:
        _ = waiters.create_task(run(gate, key("check"), timeout_seconds=1))
        await asyncio.sleep(JOIN_SECONDS / 2)
        _ = waiters.create_task(run(gate, key("check"), timeout_seconds=3600))

    assert [call.timeout_seconds for call in runtime.execs] == [1, 3600]


@pytest.mark.parametrize(
    ("first", "second"), [pytest.param(1, 10, id="short"), pytest.param(60, 3600, id="long")]
)
async def test_a_call_that_has_its_place_gets_a_longer_timeout_of_its_kind(
    runtime: ScriptedRuntime, first: int, second: int
) -> None:
    async with gate_of(runtime) as gate, asyncio.TaskGroup() as waiters:
        _ = waiters.create_task(run(gate, key("check"), timeout_seconds=first))
        await asyncio.sleep(JOIN_SECONDS / 2)
        _ = waiters.create_task(run(gate, key("check"), timeout_seconds=second))

    assert [call.timeout_seconds for call in runtime.execs] == [second]


async def test_a_call_that_waits_becomes_long_when_a_long_one_joins(
    runtime: ScriptedRuntime,
) -> None:
    runtime.on_exec("slow", script=succeed(after_seconds=1))
    async with gate_of(runtime, places=1) as gate, asyncio.TaskGroup() as waiters:
        for command, timeout in (("slow", 3), ("check", 1), ("check", 3600)):
            _ = waiters.create_task(run(gate, key(command), timeout_seconds=timeout))

    assert [call.timeout_seconds for call in runtime.execs] == [3, 3600]


async def test_long_commands_of_one_pod_leave_places_for_its_short_ones(
    runtime: ScriptedRuntime, looptime: float
) -> None:
    runtime.on_exec("check", script=succeed(b"x"))

    async def hangs(gate: ExecGate, number: int) -> None:
        runtime.on_exec(f"hang-{number}", script=hang())
        _ = await run(gate, key(f"hang-{number}"), timeout_seconds=3600)

    async with AsyncExitStack() as stack:
        gate = await stack.enter_async_context(gate_of(runtime))
        for number in range(20):
            _ = await stack.enter_async_context(background(hangs(gate, number)))
        await asyncio.sleep(1)
        assert runtime.in_flight == 2
        result = await run(gate, key("check"), timeout_seconds=1)

    assert result.stdout == b"x"
    assert looptime == pytest.approx(1 + JOIN_SECONDS)


@pytest.mark.parametrize(
    ("period", "edited", "limit"),
    [
        pytest.param(1, 1, 30, id="30-s"),
        pytest.param(20, 20, 60, id="three-periods"),
        pytest.param(300, 20, 60, id="three-periods-after-an-edit"),
    ],
)
async def test_a_probe_that_waits_too_long_is_counted_until_it_runs(
    runtime: ScriptedRuntime, period: int, edited: int, limit: int
) -> None:
    runtime.on_exec("slow", script=succeed(after_seconds=limit + 10))
    registry = CollectorRegistry()
    probe = WaitingProbe(period)

    async def queued(gate: ExecGate) -> ExecResult:
        return await gate.execute(
            key("check", period=period),
            tenant=Tenant("games", "uid-2"),
            timeout_seconds=1,
            waiter=probe,
        )

    def count() -> float | None:
        return registry.get_sample_value("kruise_probe_exec_queued_probes")

    async with gate_of(runtime, places=1) as gate, asyncio.TaskGroup() as waiters:
        registry.register(ExecGateCollector(gate))
        _ = waiters.create_task(run(gate, key("slow"), timeout_seconds=3600))
        task = waiters.create_task(queued(gate))
        await asyncio.sleep(limit - 1)
        probe.period_seconds = edited
        assert (count(), gate.queued_too_long(probe)) == (0, "")
        await asyncio.sleep(1)
        assert count() == 1
        assert gate.queued_too_long(probe) == (
            "no place to run the command; commands of other pods hold the 1 of this node's 1 places that they may "
            "hold; raise --max-concurrent-execs of the daemon, or move the pod to another node"
        )
        _ = await task
        assert (count(), gate.queued_too_long(probe)) == (0, "")


async def test_metrics_show_what_is_in_flight_and_how_long_calls_waited(
    runtime: ScriptedRuntime,
) -> None:
    runtime.on_exec("a", script=succeed(after_seconds=1))
    runtime.on_exec("b", script=succeed(after_seconds=1))
    registry = CollectorRegistry()
    async with gate_of(runtime, places=1) as gate, asyncio.TaskGroup() as waiters:
        registry.register(ExecGateCollector(gate))
        _ = waiters.create_task(run(gate, key("a"), timeout_seconds=3))
        _ = waiters.create_task(run(gate, key("b"), timeout_seconds=3))
        await asyncio.sleep(0.5)
        assert registry.get_sample_value("kruise_probe_exec_in_flight") == 1

    assert registry.get_sample_value("kruise_probe_exec_in_flight") == 0
    assert registry.get_sample_value("kruise_probe_exec_queue_seconds_count") == 2
    assert registry.get_sample_value("kruise_probe_exec_queue_seconds_sum") == pytest.approx(
        1 + JOIN_SECONDS
    )
    assert registry.get_sample_value("kruise_probe_exec_shared_total") == 0
    bounds = [
        sample.labels["le"]
        for family in registry.collect()
        for sample in family.samples
        if sample.name == "kruise_probe_exec_queue_seconds_bucket"
    ]
    assert bounds == [
        "0.01",
        "0.025",
        "0.05",
        "0.1",
        "0.25",
        "0.5",
        "1.0",
        "2.5",
        "5.0",
        "10.0",
        "+Inf",
    ]
