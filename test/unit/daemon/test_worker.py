"""One probe on a scripted node: schedule, containers, edits, blocked probes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs
from support.cases import cases
from support.metrics import counted
from support.scripted_node import (
    BAD,
    OK,
    ScriptedNode,
    exec_probe,
    one,
    pod_of,
    probe_of,
    spec_of,
)

from kruise_probe.api.node_pod_probe import NodePodProbeSpec
from kruise_probe.api.probe import ExecAction, Probe
from kruise_probe.api.v1alpha1 import ContainerProbe
from kruise_probe.daemon.probers.prober import BytesQueued, Prober, ProbeResult, Target

ERRORS = "kruise_probe_worker_errors_total"


def rare(command: str = "check", **numbers: int) -> NodePodProbeSpec:
    """A spec of one probe that runs every five minutes."""
    return one(exec_probe(command, period_seconds=300, **numbers))


@asynccontextmanager
async def running(
    node: ScriptedNode, spec: NodePodProbeSpec, seconds: float = 3
) -> AsyncIterator[None]:
    """A daemon with this spec, in which the container started `seconds` ago."""
    node.api.put(spec)
    async with node.daemon():
        node.containers.start()
        await asyncio.sleep(seconds)
        yield


# Schedule.


async def test_b9_a_slow_probe_does_not_drift(node: ScriptedNode) -> None:
    node.probers.answer(OK, seconds=0.7)
    async with running(node, one(exec_probe()), 1002):
        _, first, *later = node.probers.times
    assert len(later) >= 999
    for number, began in enumerate(later, 1):
        assert abs(began - first - number) < 0.05


@cases(
    "after",
    before_its_first_step=None,
    then=0.0,
    later=0.001,
)
async def test_discarded_attempt_gives_no_result_and_is_cancelled(
    node: ScriptedNode, after: float | None
) -> None:
    def edit() -> None:
        node.probers.on_probe = None
        node.probers.answer(OK, seconds=1)
        node.api.put(rare("new"))

    def edit_after() -> None:
        loop = asyncio.get_running_loop()
        if after is None:
            loop.call_soon(edit)
        else:
            loop.call_later(after, edit)

    node.probers.answer(BAD, seconds=0.5)
    node.probers.on_probe = edit_after
    node.api.put(rare("old"))
    async with node.daemon():
        node.containers.start()
        await asyncio.sleep(2)
    (write,) = node.api.writes
    assert write.at == pytest.approx(1, abs=0.3)
    assert node.api.state() == "Succeeded"
    assert [reason for _, _, reason, *_ in node.recorder.events] == ["KruiseProbeSucceeded"]
    assert node.probers.attempts[-1].ended is not None
    assert node.probers.most_in_flight == 1


# Containers.


async def test_a_state_has_the_hash_of_the_probe_that_was_run(node: ScriptedNode) -> None:
    def published() -> str | None:
        return node.api.states()["pod/marker#probe"].probe_hash

    async with running(node, rare(), 1):
        before = published()
        node.probers.answer(BAD)
        node.api.put(rare(timeout_seconds=9, failure_threshold=2))
        await asyncio.sleep(10)
        assert len(node.probers.attempts) == 2
        assert published() == before
        node.probers.answer(OK)
        await asyncio.sleep(460)
        assert published() not in (before, None)


# What cannot be probed.


async def test_an_error_of_a_prober_is_counted_each_time_and_logged_again_after_a_result(
    node: ScriptedNode,
) -> None:
    node.api.put(one(exec_probe(period_seconds=5)))
    errors = counted(ERRORS)
    failed = 0
    with capture_logs() as logs:
        async with node.daemon():
            node.containers.start()
            for _ in range(2):
                node.probers.answer(ZeroDivisionError("oops"))
                attempts = len(node.probers.attempts)
                await asyncio.sleep(20)
                failed += len(node.probers.attempts) - attempts
                node.probers.answer(OK)
                await asyncio.sleep(10)
    assert failed >= 6
    assert errors() == failed
    found = [log["event"] for log in logs if log["log_level"] == "error"]
    assert found == ["probe could not run"] * 2


async def test_prober_that_cannot_be_created_affects_only_its_probe(node: ScriptedNode) -> None:
    def create(entry: ContainerProbe) -> Prober:
        if entry.probe.exec == ExecAction(("broken",)):
            raise ZeroDivisionError("oops")
        return node.probers(entry)

    def spec(command: str) -> NodePodProbeSpec:
        fussy = probe_of(exec_probe(command, period_seconds=300), "m#fussy")
        sound = probe_of(exec_probe("sound"), "m#sound")
        return spec_of(pod_of(fussy, sound))

    node.prober_factory = create
    node.containers.start(age=100)
    node.api.put(spec("broken"))
    async with node.daemon(12):
        assert list(node.api.states()) == ["pod/m#sound"]
        node.api.put(spec("mended"))
        await asyncio.sleep(0.15)
        assert node.api.state("pod/m#fussy") == "Succeeded"


async def test_attempt_over_its_bytes_runs_again_and_has_one_result(node: ScriptedNode) -> None:
    async def behave(*_: object) -> ProbeResult:
        if len(node.probers.attempts) == 1:
            raise BytesQueued
        return OK

    errors = counted(ERRORS)
    node.probers.behaviour = behave
    async with running(node, rare()):
        assert node.api.state() == "Succeeded"
    assert len(node.probers.attempts) == 2
    assert errors() == 0


# Edits.


async def test_an_error_of_the_old_handler_is_dropped(node: ScriptedNode) -> None:
    async def behave(probe: Probe, _: Target) -> ProbeResult:
        if probe.exec == ExecAction(("old",)):
            try:
                await asyncio.sleep(20)
            except asyncio.CancelledError:
                raise ZeroDivisionError("oops") from None
        return OK

    errors = counted(ERRORS)
    node.probers.behaviour = behave
    async with running(node, rare("old")):
        node.api.put(rare("new"))
        await asyncio.sleep(100)
        assert node.api.state() == "Succeeded"
    assert errors() == 0


async def test_of_two_probes_with_one_key_the_first_runs(node: ScriptedNode) -> None:
    first = probe_of(exec_probe("one"))
    second = probe_of(exec_probe("two"))
    async with running(node, spec_of(pod_of(first, second))):
        run = {attempt.probe.exec for attempt in node.probers.attempts}
    assert run == {ExecAction(("one",))}


async def test_a22_five_probes_of_one_container_have_five_results(node: ScriptedNode) -> None:
    async def behave(probe: Probe, _: Target) -> ProbeResult:
        return OK if probe in odd else BAD

    node.probers.behaviour = behave
    entries = [probe_of(exec_probe(str(number)), f"m#{number}") for number in range(5)]
    odd = [entry.probe for entry in entries[1::2]]
    async with running(node, spec_of(pod_of(*entries))):
        for left in (4, 3):
            node.api.put(spec_of(pod_of(*entries[:left])))
            await asyncio.sleep(3)
        states = node.api.states()
        assert {name: str(states[name].state) for name in states} == {
            "pod/m#0": "Failed",
            "pod/m#1": "Succeeded",
            "pod/m#2": "Failed",
        }
