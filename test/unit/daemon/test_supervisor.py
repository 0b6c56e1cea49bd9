"""The daemon as a whole on a scripted node: its figures, restarts and its end."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import msgspec
import pytest
from prometheus_client import REGISTRY, generate_latest
from structlog.testing import capture_logs
from support.cases import cases
from support.marker_table import INVALID
from support.metrics import counted
from support.scripted_node import (
    BAD,
    HUNG,
    NODE,
    OK,
    ScriptedNode,
    exec_probe,
    gaps,
    loop_time,
    one,
    pod_of,
    probe_of,
    spec_of,
    wall_clock,
)

from kruise_probe.api.meta import OwnerReference
from kruise_probe.api.node_pod_probe import ContainerProbeState, NodePodProbeStatus, PodProbe
from kruise_probe.api.probe import Probe
from kruise_probe.api.times import format_time
from kruise_probe.api.v1alpha1 import ContainerProbe
from kruise_probe.daemon.places import EXECS, Places
from kruise_probe.daemon.probers.prober import CouldNotProbe, ProbeResult, Reason, success
from kruise_probe.runtime.recorder import ObjectReference

ONE = one(exec_probe())


def run_pods(
    node: ScriptedNode,
    pods: int,
    probes: int = 1,
    *,
    age: float = 0.0,
    **fields: int,
) -> None:
    """Start `pods` pods with `probes` probes each, whose containers are `age` seconds old."""
    entries = []
    for number in range(probes):
        probe = exec_probe(f"c{number}", **fields)
        entries.append(probe_of(probe, f"m#p{number}"))
    names = [f"web-{number}" for number in range(pods)]
    node.api.put(spec_of(*(pod_of(*entries, name=name) for name in names)))
    for name in names:
        node.containers.start(name, age=age)


def run_pod(
    node: ScriptedNode,
    command: str = "check",
    *,
    age: float = 0.0,
    **numbers: int,
) -> None:
    """Start a pod with one probe, whose container is `age` seconds old."""
    node.api.put(one(exec_probe(command, **numbers)))
    node.containers.start(age=age)


async def tell_time(*_: object) -> ProbeResult:
    return success(str(loop_time()))


# Publication.


async def test_thirty_chatty_probes_take_at_most_thirty_writes_a_minute_and_no_event(
    node: ScriptedNode,
) -> None:
    node.probers.behaviour = tell_time
    run_pods(node, 30, age=100)
    async with node.daemon(10):
        writes = len(node.api.writes)
        events = len(node.recorder.events)
        await asyncio.sleep(60)
        assert len(node.api.writes) - writes <= 30
        assert len(node.recorder.events) == events
        newest = float(node.api.message("web-0/m#p0"))
        assert loop_time() - newest <= 3.2


async def test_a_transition_is_one_event_on_the_container_and_a_warning_if_unknown(
    node: ScriptedNode,
) -> None:
    entry = probe_of(exec_probe(), container="sidecar")
    node.api.put(spec_of(pod_of(entry, name="web-0")))
    async with node.daemon():
        node.containers.start("web-0", "sidecar")
        impossible = CouldNotProbe(Reason.EXEC_IMPOSSIBLE, "no such file")
        for result in (OK, impossible, BAD):
            node.probers.answer(result)
            await asyncio.sleep(600)

    pod = ObjectReference("default", "web-0", "uid-web-0", "v1", "Pod")
    more = {"container": "sidecar", "probe": "marker#probe"}
    assert node.recorder.events == [
        (pod, "Normal", "KruiseProbeSucceeded", "marker#probe: ok", more),
        (pod, "Warning", "KruiseProbeUnknown", "marker#probe: ExecImpossible: no such file", more),
        (pod, "Normal", "KruiseProbeFailed", "marker#probe: bad", more),
    ]


@cases("exit_code kind", completed=(0, "Normal"), failed=(3, "Warning"))
async def test_the_event_of_a_container_that_completed_is_no_warning(
    node: ScriptedNode, exit_code: int, kind: str
) -> None:
    node.api.put(ONE)
    async with node.daemon():
        node.containers.start()
        node.probers.answer(OK)
        await asyncio.sleep(60)
        node.containers.stop(exit_code=exit_code)
        await asyncio.sleep(120)
    message = f"marker#probe: ContainerNotRunning: container main is Exited, exit code {exit_code}"
    assert node.recorder.events[-1][1:4] == (kind, "KruiseProbeUnknown", message)


def owners(node: ScriptedNode) -> Any:
    assert node.api.lease is not None
    return node.api.lease["metadata"].get("ownerReferences")


async def test_the_lease_has_the_owner_of_the_node_pod_probe(node: ScriptedNode) -> None:
    node.api.put(ONE)
    async with node.daemon(15):
        first = owners(node)
        node.api.node = msgspec.structs.replace(node.api.node, uid="uid-node-2")
        node.api.put(ONE)
        await asyncio.sleep(20)
        second = owners(node)
        node.api.lease = None
        await asyncio.sleep(20)
        assert owners(node) == second, "the Lease is created again"

    owner = {
        "apiVersion": "v1",
        "kind": "Node",
        "name": NODE,
    }
    assert first == [{**owner, "uid": "uid-node-1"}]
    assert second == [{**owner, "uid": "uid-node-2"}]


@cases(
    "owner",
    another_node=OwnerReference("v1", "Node", "node-2", "u"),
    another_kind_of_this_name=OwnerReference("v1", "ConfigMap", NODE, "u"),
)
async def test_the_lease_has_no_other_owner(node: ScriptedNode, owner: OwnerReference) -> None:
    node.api.node = owner
    node.api.put(ONE)
    async with node.daemon(15):
        assert owners(node) is None


# Figures.


async def test_b7_load_is_flat_after_a_restart(node: ScriptedNode) -> None:
    run_pods(node, 250, 4, age=1000, period_seconds=10)
    async with node.daemon():
        await asyncio.sleep(30)
    seconds = Counter[int]()
    tenths = Counter[int]()
    for began in node.probers.times:
        seconds[int(began)] += 1
        tenths[int(began * 10)] += 1
    for second in range(30):
        assert 65 <= seconds[second] <= 135
    assert max(tenths.values()) <= 30


async def test_b2_commands_over_the_limit_take_turns(node: ScriptedNode) -> None:
    missed = counted("kruise_probe_ticks_missed_total")
    node.execs = Places(16, EXECS)
    node.probers.answer(OK, seconds=0.1)
    run_pods(node, 200, age=1000, timeout_seconds=5)
    async with node.daemon(30):
        assert len(node.api.states()) == 200
    attempts = node.probers.attempts
    of_pods = Counter(attempt.target.container_id for attempt in attempts).values()
    room = 12 / 0.1 * 30
    skipped = 200 * 30 - room
    assert node.probers.most_in_flight == 12, "the rest is for other namespaces"
    assert len(attempts) >= 0.95 * room, "no place is left empty"
    assert min(of_pods) >= 0.7 * max(of_pods), "no pod starves"
    assert missed() >= 0.9 * skipped, "what was skipped is counted"


# Restarts.


@cases(
    "prunes delay",
    our_crd=(False, 0),
    kruises_crd=(True, 2),
)
async def test_a21_a_killed_daemon_leaves_fifty_steady_probes_as_they_are(
    node: ScriptedNode, prunes: bool, delay: int
) -> None:
    node.api.prunes = prunes
    run_pods(node, 25, 2, initial_delay_seconds=delay)
    await node.killed_daemon(10)
    node.api.writes.clear()
    node.recorder.events.clear()
    for _ in range(20):
        await node.killed_daemon(3.3)
    assert not node.api.writes
    assert not node.recorder.events


async def test_a_known_state_waits_for_its_phase_and_an_unknown_one_at_most_ten_seconds(
    node: ScriptedNode,
) -> None:
    entry = probe_of(exec_probe(period_seconds=3600))
    known = pod_of(entry, name="known")
    unknown = pod_of(entry, name="unknown")
    node.api.put(spec_of(known))
    node.containers.start("known", id="c-known")
    node.containers.start("unknown", id="c-unknown")
    await node.killed_daemon(100)
    node.api.put(spec_of(known, unknown))
    node.probers.attempts.clear()
    began = loop_time()
    await node.killed_daemon(100)
    (attempt,) = node.probers.attempts
    assert attempt.target.container_id == "c-unknown"
    assert attempt.began - began <= 10


def replace(node: ScriptedNode) -> None:
    node.containers.start()


def write_as_before(node: ScriptedNode) -> None:
    """Earlier daemons wrote the id of the container with each state."""
    assert node.api.object is not None
    status = msgspec.to_builtins(node.api.status)
    for pod in status["podProbeStatuses"]:
        for state in pod["probeStates"]:
            state["containerID"] = "0123456789abcdef" * 4
    written = msgspec.convert(status, NodePodProbeStatus)
    node.api.object = msgspec.structs.replace(node.api.object, status=written)


def begin_unknown(node: ScriptedNode) -> None:
    """The next daemon waits a second for the status of the container."""
    node.containers.known = False
    asyncio.get_running_loop().call_later(901, node.containers.show)


@cases(
    "delay change down states",
    a_container_without_a_status_yet_keeps_its_state=(0, begin_unknown, 900, "Succeeded"),
    a_replaced_container_keeps_the_state=(0, replace, 0, "Succeeded"),
    a_replaced_container_in_its_delay_is_unknown=(5, replace, 0, "Succeeded Unknown Succeeded"),
    a_delay_that_has_ended_changes_nothing=(5, replace, 6, "Succeeded"),
    a_short_break_keeps_the_state_of_a_container_that_exited=(0, ScriptedNode.stop, 40, "Succeeded"),
    after_a_reboot_a_container_that_does_not_run_is_unknown=(0, ScriptedNode.stop, 55, "Succeeded Unknown"),
    after_a_reboot_a_removed_container_is_unknown=(0, ScriptedNode.remove, 55, "Succeeded Unknown"),
    after_a_reboot_another_container_has_no_state=(0, replace, 55, "Succeeded Unknown Failed"),
    after_a_reboot_without_runtime_it_is_unknown=(0, ScriptedNode.lose_runtime, 205, "Succeeded Unknown"),
    after_a_long_break_the_same_container_keeps_its_state=(0, lambda node: None, 900, "Succeeded"),
    an_upgrade_keeps_the_states_of_earlier_daemons=(0, write_as_before, 900, "Succeeded"),
)  # fmt: skip
async def test_state_of_a_container_that_changed_while_the_daemon_was_down(
    node: ScriptedNode,
    delay: int,
    change: Callable[[ScriptedNode], object],
    down: int,
    states: str,
) -> None:
    run_pod(node, initial_delay_seconds=delay)
    await node.killed_daemon(21)
    change(node)
    if states.endswith("Failed"):
        node.probers.answer(BAD)
    await asyncio.sleep(down)
    await node.killed_daemon(4 if down else 20)
    assert states.split() == node.api.transitions()


@pytest.mark.parametrize("failure_threshold", [1, 4])
async def test_a_stuck_command_is_still_stuck_after_a_restart(
    node: ScriptedNode, failure_threshold: int
) -> None:
    """A timeout is a verdict, a stuck command is not: `Ready` of its marker would become True."""
    node.api.put(one(exec_probe(failure_threshold=failure_threshold)))
    node.containers.start()
    node.probers.answer(HUNG)
    await node.killed_daemon(300)
    message = node.api.message()
    assert message.startswith("ExecStuck: ")
    await node.killed_daemon(300)
    assert node.api.message() == message
    written = [state.message for state in states_written(node)]
    assert written.index(message) + written.count(message) == len(written)
    node.probers.answer(OK)
    await node.killed_daemon(120)
    assert node.api.state() == "Succeeded"
    await node.killed_daemon(10.5)
    assert gaps(node.probers.times[-10:]) == [1.0] * 9


def states_written(node: ScriptedNode) -> Iterator[ContainerProbeState]:
    for write in node.api.writes:
        for pod in write.status.pod_probe_statuses or ():
            yield from pod.probe_states or ()


async def test_a_result_in_the_second_of_a_restart_is_not_of_the_container_in_its_delay(
    node: ScriptedNode,
) -> None:
    """Wire times have whole seconds, so by its time it may be of both containers."""
    run_pod(node, age=4, initial_delay_seconds=5)
    await node.killed_daemon(1.2)
    node.containers.start()
    (pod,) = node.api.status.pod_probe_statuses
    assert pod.probe_states[0].last_probe_time == format_time(wall_clock())
    await node.killed_daemon(2)
    assert node.api.transitions() == ["Succeeded", "Unknown"]


@pytest.mark.parametrize("prunes", [False, True])
async def test_the_first_result_of_a_container_that_came_meanwhile_is_written(
    node: ScriptedNode, prunes: bool
) -> None:
    node.api.prunes = prunes
    run_pod(node, age=100)
    await node.killed_daemon(11)
    await asyncio.sleep(10)
    node.containers.start()
    await asyncio.sleep(10)
    await node.killed_daemon(11)
    await asyncio.sleep(900)
    await node.killed_daemon(4)
    assert node.api.transitions() == ["Succeeded"]


async def test_a_container_that_started_before_the_clock_was_set_back_keeps_its_state(
    node: ScriptedNode,
) -> None:
    run_pod(node, age=-8 * 3600, initial_delay_seconds=10)
    for _ in range(3):
        await node.killed_daemon(15)
    assert node.api.transitions() == ["Succeeded"]


async def test_an_object_that_comes_after_the_start_is_not_read_back(node: ScriptedNode) -> None:
    """Its status may be old, as it was not updated while the object did not exist. It is probed at once instead."""
    node.containers.start(age=100)
    spec = one(exec_probe(period_seconds=3600))
    node.api.put(spec)
    await node.killed_daemon(50)
    assert node.api.state() == "Succeeded"
    kept = node.api.status
    node.api.remove()
    node.probers.attempts.clear()
    async with node.daemon(50):
        node.probers.answer(BAD)
        node.api.put(spec, kept)
        await asyncio.sleep(0.05)
        assert len(node.probers.attempts) == 1
        assert node.api.state() != "Succeeded"


# The end.


async def test_a_tick_that_is_due_in_the_step_of_the_end_is_no_result(node: ScriptedNode) -> None:
    node.api.put(ONE)
    with capture_logs() as logs:
        async with node.daemon(3):
            node.containers.start()  # its first attempt is due in the next step
    assert not node.api.writes
    assert not node.recorder.events
    assert not logs


async def test_shutdown_takes_three_seconds_at_most(node: ScriptedNode) -> None:
    """Two seconds for the last results, one for the last events; also if a command, the API server and events hang."""
    failures = iter([BAD])

    async def hang(*_: object) -> None:
        await asyncio.Event().wait()

    async def hang_after_a_failure(*_: object) -> ProbeResult:
        if result := next(failures, None):
            return result
        await hang()
        raise AssertionError

    run_pods(node, 20)
    with capture_logs() as logs:
        async with node.daemon(3):
            node.probers.behaviour = hang_after_a_failure
            node.api.fail = hang
            await asyncio.sleep(3)
            assert node.probers.in_flight
            node.recorder.flush = hang  # type: ignore[method-assign]
            began = loop_time()
    assert loop_time() - began == pytest.approx(3, abs=0.01)
    assert [log["event"] for log in logs[-2:]] == [
        "last results could not be written",
        "the last events were not sent in time and are dropped",
    ]
    assert node.probers.in_flight == 0


async def test_the_last_results_are_written_at_the_end(node: ScriptedNode) -> None:
    node.probers.behaviour = tell_time
    run_pod(node, age=100)
    async with node.daemon():
        await asyncio.sleep(10.9)
    assert float(node.api.message()) == pytest.approx(node.probers.times[-1])


# Malformed objects.


FIELDS = (
    "initial_delay_seconds",
    "timeout_seconds",
    "period_seconds",
    "success_threshold",
    "failure_threshold",
)
NUMBERS = (
    -(2**63),
    -1,
    0,
    2**31,
    2**63 - 1,
)
STRANGE = ("", "\x00", "#", "m#", "m#p#q", "nonsense", "::1")


def malformed_pods() -> list[PodProbe]:
    """A pod with the probes of all invalid markers, and pods whose names, addresses and containers are of any text."""
    probes = [exec_probe("check", **{field: number}) for field, number in product(FIELDS, NUMBERS)]
    for row in INVALID:
        for wire in row.spec.get("probes") or ():
            if "probe" in wire:
                probe = msgspec.convert(wire["probe"], Probe)
                probes.append(probe)
    invalid = [probe_of(probe, f"m#{number}") for number, probe in enumerate(probes)]
    strange = tuple(ContainerProbe(text, text, exec_probe()) for text in STRANGE)
    without_probes = PodProbe("none", "default", "uid-none", "", ())
    strange_pods = [PodProbe(text, text, text, text, strange * 2) for text in STRANGE]
    return [pod_of(*invalid), without_probes, *strange_pods]


async def test_no_malformed_object_stops_the_daemon_or_another_probe(node: ScriptedNode) -> None:
    sound = pod_of(probe_of(exec_probe("sound")), name="sound")
    node.containers.start()
    node.containers.start("sound")
    async with node.daemon():
        for pod in malformed_pods():
            node.api.put(spec_of(pod, sound))
            await asyncio.sleep(3.2)
            assert node.api.state("sound/marker#probe") == "Succeeded"
        node.api.put(spec_of(*malformed_pods(), sound))
        await asyncio.sleep(3.2)
        node.api.put(spec_of(sound))
        await asyncio.sleep(3)
        assert list(node.api.states()) == ["sound/marker#probe"]
        assert node.containers.subscriptions == 1


async def test_b21_after_pods_have_come_and_gone_there_are_no_more_series_than_before(
    node: ScriptedNode,
) -> None:
    def series() -> set[str]:
        lines = generate_latest(REGISTRY).decode().splitlines()
        return {line.rpartition(" ")[0] for line in lines}

    entry = probe_of(exec_probe())
    steady = pod_of(entry, name="steady")
    node.containers.start("steady")
    node.api.put(spec_of(steady))
    async with node.daemon(2):
        before = series()
        for number in range(1000):
            name = f"web-{number}"
            node.containers.start(name)
            pod = pod_of(entry, name=name)
            node.api.put(spec_of(steady, pod))
            await asyncio.sleep(1.5)
            node.containers.remove(name)
        assert any("web-999" in name for name in series())
        node.api.put(spec_of(steady))
        await asyncio.sleep(2)
        assert not series() - before


async def test_nothing_is_sent_for_an_object_that_was_deleted(node: ScriptedNode) -> None:
    requests: list[str] = []

    async def count(kind: str) -> None:
        requests.append(kind)

    run_pod(node, age=100)
    async with node.daemon(3):
        node.api.fail = count
        node.api.remove()
        await asyncio.sleep(700)
    assert requests == ["Lease"]  # for years


async def test_probes_are_counted_by_their_published_state(node: ScriptedNode) -> None:
    def states() -> dict[str, float]:
        found = {}
        for family in REGISTRY.restricted_registry(["kruise_probe_probes"]).collect():
            for sample in family.samples:
                if sample.labels["type"] == "exec":
                    found[sample.labels["state"]] = sample.value
        return found

    node.api.put(ONE)
    async with node.daemon(5):
        assert states() == {"Pending": 1}
        node.containers.start()
        await asyncio.sleep(1)
        assert states() == {"Succeeded": 1}
        node.probers.answer(BAD)
        await asyncio.sleep(2)
        assert states() == {"Failed": 1}
    node.containers.set_available(False)
    async with node.daemon(5):
        assert states() == {"Failed": 1}
    assert states() == {}


async def test_a_probe_edited_while_the_daemon_was_down_runs_within_ten_seconds(
    node: ScriptedNode,
) -> None:
    run_pod(node, "old", period_seconds=3600)
    await node.killed_daemon(10)
    node.api.put(one(exec_probe("new", period_seconds=3600)))
    node.probers.answer(BAD)
    await node.killed_daemon(11)
    assert node.api.state() == "Failed"
