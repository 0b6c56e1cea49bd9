"""Execs as a daemon makes them: schedule, gate and probers together, down to the calls that the runtime sees."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
from prometheus_client import REGISTRY
from support.background import background
from support.fake_runtime import ExecCall, ScriptedRuntime, succeed
from support.scripted_node import (
    ScriptedNode,
    exec_probe,
    gaps,
    loop_time,
    pod_of,
    probe_of,
    spec_of,
)

from kruise_probe.daemon.cri.runtime import ExecResult
from kruise_probe.daemon.probers.exec_gate import ExecGate
from kruise_probe.daemon.probers.selection import prober_for

CAP = 16


class Execs:
    """A node whose probers are the real ones, and when the runtime was asked for which command."""

    def __init__(self) -> None:
        self.node = ScriptedNode()
        self.runtime = ScriptedRuntime()
        self.began: dict[tuple[str, ...], list[float]] = {}

    def container(self, pod: str = "pod", *commands: str, seconds: float = 0.0) -> None:
        """A container that has run for long; each of the commands takes so many seconds in it."""
        container = self.runtime.start(f"uid-{pod}")
        self.node.containers.start(pod, id=container.id, age=1000)

        async def noted(call: ExecCall) -> ExecResult:
            self.began.setdefault(call.command, []).append(loop_time())
            return await succeed(b"fine", after_seconds=seconds)(call)

        for command in commands:
            self.runtime.on_exec(command, script=noted)

    @asynccontextmanager
    async def daemon(self) -> AsyncIterator[None]:
        gate = ExecGate(self.runtime, max_concurrent=CAP)
        self.node.prober_factory = partial(prober_for, gate=gate, user_agent="x")
        async with background(gate.run()), self.node.daemon():
            yield


@pytest.fixture
def execs() -> Execs:
    return Execs()


async def test_b1_three_markers_that_ask_the_same_are_one_exec_a_period(execs: Execs) -> None:
    execs.container("pod", "check", "other")
    probes = [
        probe_of(exec_probe("check", period_seconds=4, timeout_seconds=1), "one#p"),
        probe_of(exec_probe("check", period_seconds=4, timeout_seconds=3), "two#p"),
        probe_of(exec_probe("check", period_seconds=4, failure_threshold=5), "three#p"),
    ]
    async with execs.daemon():
        for known in (1, 2, 3):  # Markers come one after the other, as people write them.
            execs.node.api.put(spec_of(pod_of(*probes[:known])))
            await asyncio.sleep(5.3)
        await asyncio.sleep(4)
        execs.began.clear()
        await asyncio.sleep(40)
        assert gaps(execs.began["check",]) == pytest.approx([4.0] * 9)
        assert {str(each.state) for each in execs.node.api.states().values()} == {"Succeeded"}
        assert len(execs.node.api.states()) == 3

        execs.node.api.put(
            spec_of(pod_of(*probes[:2], probe_of(exec_probe("other", period_seconds=4), "three#p")))
        )
        await asyncio.sleep(9)
        execs.began.clear()
        await asyncio.sleep(40)
        assert {key: len(times) for key, times in execs.began.items()} == {
            ("check",): 10,
            ("other",): 10,
        }


async def test_b2_more_execs_than_there_is_room_for_keep_to_the_cap_and_all_have_their_turn(
    execs: Execs,
) -> None:
    before = REGISTRY.get_sample_value("kruise_probe_ticks_missed_total") or 0.0
    names = [f"web-{number}" for number in range(500)]
    for name in names:
        execs.container(name, name, seconds=0.1)
    execs.node.api.put(
        spec_of(
            *(pod_of(probe_of(exec_probe(name, timeout_seconds=5)), name=name) for name in names)
        )
    )
    seconds = 60
    async with execs.daemon():
        await asyncio.sleep(seconds)
    missed = (REGISTRY.get_sample_value("kruise_probe_ticks_missed_total") or 0.0) - before
    served = Counter({name: len(execs.began.get((name,), ())) for name in names})
    room = CAP / 0.1 * seconds
    assert execs.runtime.most_in_flight == CAP
    assert served.total() >= 0.95 * room, "no place is left empty"
    assert min(served.values()) >= 0.7 * max(served.values()), "nobody starves"
    assert missed >= 0.9 * (500 * seconds - room), "what was skipped is counted"
    assert len(execs.node.api.states()) == 500
