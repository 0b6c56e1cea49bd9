"""Execs as a daemon makes them: schedule, gate and probers together, down to the calls that the runtime sees."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
from prometheus_client import REGISTRY
from support.fake_runtime import ExecCall, ScriptedRuntime, exit_with, hang, succeed
from support.scripted_node import (
    ScriptedNode,
    exec_probe,
    loop_time,
    pod_of,
    probe_of,
    spec_of,
)

from kruise_probe.api.v1alpha1 import ContainerProbe, PodProbe
from kruise_probe.daemon.cri.runtime import ExecResult
from kruise_probe.daemon.places import EXECS, Places
from kruise_probe.daemon.probers.selection import prober_for

CAP = 16
HANGING = [f"hang-{number}" for number in range(5)]


class Execs:
    """A node whose probers are the real ones, and when the runtime ran which command."""

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
        self.node.execs = Places(CAP, EXECS)
        self.node.prober_factory = partial(prober_for, commands=self.runtime, user_agent="x")
        async with self.node.daemon():
            yield


@pytest.fixture
def execs() -> Execs:
    return Execs()


async def test_b2_execs_over_the_limit_take_turns(
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
    room = 0.75 * CAP / 0.1 * seconds
    assert execs.runtime.most_in_flight == 0.75 * CAP, "the rest is for other namespaces"
    assert served.total() >= 0.95 * room, "no place is left empty"
    assert min(served.values()) >= 0.7 * max(served.values()), "no pod starves"
    assert missed >= 0.9 * (500 * seconds - room), "what was skipped is counted"
    assert len(execs.node.api.states()) == 500


LONG = 3600


def pod_in(namespace: str, name: str, *probes: ContainerProbe) -> PodProbe:
    return PodProbe(name, namespace, f"uid-{name}", "127.0.0.9", probes)


def named(name: str, command: str, *, timeout: int, period: int = 1) -> ContainerProbe:
    return probe_of(exec_probe(command, timeout_seconds=timeout, period_seconds=period), name)


def hostile_pod(execs: Execs, namespace: str, name: str) -> PodProbe:
    """Commands that hang: for an hour, for ten seconds, and every second run so that their period is not stretched."""
    execs.container(name)
    runs: Counter[tuple[str, ...]] = Counter()

    async def hang_every_other_time(call: ExecCall) -> ExecResult:
        runs[call.command] += 1
        return await (hang() if runs[call.command] % 2 else succeed())(call)

    probes: list[ContainerProbe] = []
    for kind, timeout in (("long", LONG), ("medium", 10), ("short", 2), ("second", 1)):
        for number in range(6):
            command = f"{name}-{kind}-{number}"
            execs.runtime.on_exec(command, script=hang() if timeout > 2 else hang_every_other_time)
            probes.append(named(f"m#{kind}-{number}", command, timeout=timeout))
    return pod_in(namespace, name, *probes)


class Victims:
    """Thirty pods whose probe takes 50 ms and succeeds or fails as the test says."""

    def __init__(self, execs: Execs, *, timeout: int) -> None:
        self.execs = execs
        self.good = dict.fromkeys((f"good-{number}" for number in range(30)), True)
        for name in self.good:
            execs.container(name)
            execs.runtime.on_exec(name, script=self._answer)
        self.pods = [
            pod_in("good", name, named("m#p", name, timeout=timeout)) for name in self.good
        ]

    async def _answer(self, call: ExecCall) -> ExecResult:
        good = self.good[call.command[0]]
        return await exit_with(0 if good else 1, after_seconds=0.05)(call)

    async def flip(self, name: str) -> float:
        """Changes what the probe of `name` finds; returns after how many seconds it is published."""
        began = loop_time()
        self.good[name] = not self.good[name]
        state = "Succeeded" if self.good[name] else "Failed"
        return await self.execs.node.api.until(state, f"{name}/m#p") - began


@pytest.mark.parametrize("timeout", [1, 10])
@pytest.mark.parametrize(
    ("namespaces", "pods"),
    [
        pytest.param(1, 1, id="one-pod"),
        pytest.param(1, 20, id="twenty-pods-of-one-namespace"),
        pytest.param(3, 5, id="three-namespaces"),
    ],
)
async def test_e3_commands_that_hang_in_other_namespaces_delay_no_result(
    execs: Execs, namespaces: int, pods: int, timeout: int
) -> None:
    victims = Victims(execs, timeout=timeout)
    hostile = [
        hostile_pod(execs, f"hostile-{space}", f"hostile-{space}-{number}")
        for space in range(namespaces)
        for number in range(pods)
    ]
    chance = random.Random(3)
    execs.node.api.put(spec_of(*hostile, *victims.pods))
    async with execs.daemon():
        await asyncio.sleep(15)
        seconds: list[float] = []
        for _ in range(30):
            await asyncio.sleep(chance.uniform(0, 0.7))
            async with asyncio.timeout(60):
                seconds.append(await victims.flip(chance.choice(list(victims.good))))

    assert execs.runtime.most_in_flight <= CAP
    assert max(seconds) <= 1 + 1, "a period and a second"


async def test_e3_queued_command_is_unknown_and_names_the_holders(
    execs: Execs,
) -> None:
    names = [f"m#hang-{number}" for number in range(16)]
    execs.container("hostile")
    execs.runtime.on_exec("hang", script=hang())
    for name in names:
        execs.runtime.on_exec(name, script=hang())
    hostile = pod_in("bad", "hostile", *(named(name, name, timeout=100) for name in names))
    good = Victims(execs, timeout=1).pods[0]
    execs.node.api.put(spec_of(good))

    async with execs.daemon():
        await asyncio.sleep(5)
        execs.node.api.put(spec_of(good, hostile))
        await asyncio.sleep(28)
        states = Counter(str(each.state) for each in execs.node.api.states().values())
        assert states == {"Succeeded": 1}, "nothing is reported before 30 s"
        await asyncio.sleep(6)
        states = Counter(str(each.state) for each in execs.node.api.states().values())
        assert states == {"Succeeded": 1, "Unknown": 11}
        message = next(
            each.message for each in execs.node.api.states().values() if each.state == "Unknown"
        )
        assert message == (
            "ExecQueued: no place to run the command; commands with timeoutSeconds over 10 of this pod hold 5 of "
            "the 8 places that this node has for them, and others must stay free; end commands that hang, run fewer exec probes, or lower "
            "timeoutSeconds"
        )
        writes = len(execs.node.api.writes)
        await asyncio.sleep(20)
        assert len(execs.node.api.writes) == writes, "the message does not change"

        for name in names:
            execs.runtime.on_exec(name, script=succeed(b"fine"))
        await asyncio.sleep(80)
        states = Counter(str(each.state) for each in execs.node.api.states().values())
        assert states == {"Succeeded": 17}, "each gets its state when it runs"


@pytest.mark.parametrize(
    ("before", "edit", "limit"),
    [
        pytest.param({}, {"failure_threshold": 5}, 30, id="threshold"),
        pytest.param({}, {"initial_delay_seconds": 5}, 30, id="initial-delay"),
        pytest.param({"period_seconds": 60}, {"period_seconds": 1}, 30, id="shorter-period"),
        pytest.param({"period_seconds": 1}, {"period_seconds": 20}, 60, id="longer-period"),
    ],
)
async def test_edited_probe_is_unknown_when_it_was_queued_for_the_new_limit(
    execs: Execs, before: dict[str, int], edit: dict[str, int], limit: int
) -> None:
    queued = exec_probe("check", timeout_seconds=100, **before)
    edited = exec_probe("check", timeout_seconds=100, **{**before, **edit})
    execs.container("pod")
    for name in (*HANGING, "check"):
        execs.runtime.on_exec(name, script=hang())
    hanging = [named(f"m#{name}", name, timeout=LONG) for name in HANGING]
    async with execs.daemon():
        execs.node.api.put(spec_of(pod_of(*hanging)))
        await asyncio.sleep(5)
        queued_at = loop_time()
        execs.node.api.put(spec_of(pod_of(*hanging, probe_of(queued, "m#check"))))
        await asyncio.sleep(20)
        execs.node.api.put(spec_of(pod_of(*hanging, probe_of(edited, "m#check"))))
        async with asyncio.timeout(200):
            waited = await execs.node.api.until("Unknown", "pod/m#check") - queued_at

    assert limit - 0.5 <= waited <= limit + edited.effective_period_seconds + 0.5
