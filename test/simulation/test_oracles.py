"""Each oracle fails on a product that is broken in the way that it looks for, and on the whole one it does not."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from simulation import world as simulated_world
from simulation.acto import PROPERTIES
from simulation.broken import Break, replace, returning
from simulation.experiment import (
    DIFFERENTIAL,
    RECOVERY,
    STALENESS,
    VALIDATION,
    change_and_revert,
    kill_a_daemon,
)
from simulation.network import Sent
from simulation.plan import STEADY_AT_SECONDS, Row, SimulationPlan, steps_of
from simulation.runner import Failed, judge, simulated
from simulation.safety import Safety
from simulation.world import Commit, World
from support.cases import cases

from kruise_probe.api.v1alpha1 import ProbeState
from kruise_probe.controllers import daemon_leases, marking
from kruise_probe.controllers import marker_reconciler as markers
from kruise_probe.controllers import node_reconciler as nodes
from kruise_probe.controllers.events import NodePodProbeEvents, PodEvents
from kruise_probe.controllers.node_index import NodePodProbeIndex
from kruise_probe.daemon import supervisor
from kruise_probe.informers.reflector import Reflector
from kruise_probe.manager.leader_election import LeaderElector
from kruise_probe.workqueue.queue import WorkQueue

EDITS: list[Row] = [
    [1.0, "put_marker", "way", 3],
    [1.0, "put_marker", "gateway", 5],
    [21.0, "set_outcome", "web-1", "way-p", 1, "bad"],
    [22.0, "set_outcome", "web-2", "gateway-p", 1, "bad"],
]


def raising_afterwards(owner: Any, name: str) -> Break:
    """The method does what it did, then raises."""
    method = getattr(owner, name)

    def broken(*arguments: Any, **options: Any) -> None:
        method(*arguments, **options)
        raise RuntimeError("broken")

    return replace(owner, name, broken)


def finalize_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NodePodProbeIndex, "nodes_holding", returning(frozenset()))
    monkeypatch.setattr(markers.MarkerReconciler, "_pod_with_stale_mark", _no_pod)


def _no_pod(*_: object) -> Iterator[None]:
    """Steps without a result."""
    yield from ()


CASES: dict[str, tuple[str, list[Row], Break]] = {
    "results that never reach the pods": (
        "the desired state is reached",
        EDITS,
        replace(NodePodProbeEvents, "on_update", returning(None)),
    ),
    "labels of pods that are not followed": (
        "the desired state is reached",
        [
            *EDITS,
            [25.0, "label", "web-1", "db"],
            [26.0, "label", "web-2", "db"],
        ],
        replace(PodEvents, "on_update", returning(None)),
    ),
    "an expired version that is not dropped": (
        "the desired state is reached",
        [
            [5.0, "expire"],
            *([5.0, "cut_streams", manager] for manager in ("manager-1", "manager-2")),
            *EDITS,
        ],
        replace(Reflector, "_is_version_invalid", returning(False)),
    ),
    "entries that are written at every resync": (
        "nothing is written at rest",
        EDITS,
        replace(nodes, "_is_current", returning(False)),
    ),
    "daemons that read no results back": (
        "faults change nothing",
        [*EDITS, [STEADY_AT_SECONDS + 5, "kill", "daemon-node-1", 1.0]],
        replace(supervisor, "recorded_in", returning({})),
    ),
    "writes of a leader whose term has ended": (
        "safety",
        [
            *EDITS[:2],
            [10.0, "stop", "manager-1", 28.0],
            [10.0, "skew", "manager-2", 0.0],
            *([11.0 + n, "set_outcome", f"web-{n % 4}", "way-p", n % 2, f"{n}"] for n in range(30)),
        ],
        replace(LeaderElector, "check", returning(None)),
    ),
    "conditions that are True for Unknown": (
        "safety",
        [[0.0, "restart_container", "web-1", 100.0], *EDITS],
        replace(marking, "CONDITION_STATUS", dict.fromkeys(ProbeState, "True")),
    ),
    "an event handler that raises": (
        "no error is unhandled",
        EDITS,
        raising_afterwards(PodEvents, "on_update"),
    ),
    "a timer that raises": (
        "no error is unhandled",
        EDITS,
        raising_afterwards(WorkQueue, "_add_delayed"),
    ),
    "a finalizer that does not wait for entries and marks": (
        "safety",
        [EDITS[0], [30.0, "drop_marker", "way"]],
        finalize_at_once,
    ),
}


@cases("oracle steps break_it", **CASES)
def test_an_oracle_fails_on_a_broken_product(
    oracle: str,
    steps: list[Row],
    break_it: Break,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quiet_seconds = 700.0 if "rest" in oracle else 1.0
    planned = steps_of(steps)
    plan = SimulationPlan(0, planned, steady=planned[-1].at >= STEADY_AT_SECONDS)
    whole = judge(plan, quiet_seconds=quiet_seconds)
    assert not whole.oracle, whole
    break_it(monkeypatch)
    results = (judge(plan._replace(seed=seed), quiet_seconds=quiet_seconds) for seed in range(20))
    assert any(result.oracle == oracle for result in results)


def changing(path: str) -> Callable[[], None]:
    (found,) = (change for change in PROPERTIES if change.path == path)
    return partial(change_and_revert, found)


STALE_MARKS = replace(marking, "_remove_stale_marks", returning(None))

EXPERIMENTS: dict[str, tuple[str, Callable[[], None], Break]] = {
    "conditions of an earlier spec that stay": (
        DIFFERENTIAL,
        changing("probes[].podConditionType"),
        STALE_MARKS,
    ),
    "labels of a reverted edit that stay": (
        RECOVERY,
        changing("probes[].markerPolicy[].fromMessage[].label"),
        STALE_MARKS,
    ),
    "markers that are not validated": (
        VALIDATION,
        changing("probes[].name"),
        replace(simulated_world, "marker_problems", returning([])),
    ),
    "Leases that never expire": (
        STALENESS,
        kill_a_daemon,
        replace(daemon_leases.DaemonLeases, "why_stale", returning("")),
    ),
}


@cases("oracle experiment break_it", **EXPERIMENTS)
def test_an_oracle_of_experiments_fails_on_a_broken_product(
    oracle: str,
    experiment: Callable[[], None],
    break_it: Break,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    break_it(monkeypatch)
    with pytest.raises(Failed) as failed:
        experiment()
    assert failed.value.oracle == oracle


def pod(**more: Any) -> dict[str, Any]:
    return {"metadata": {"uid": "u", "labels": {}}, "spec": {}, "status": {"conditions": []}} | more


READY = {"conditions": [{"type": "Ready", "status": "True"}]}
SPEC: dict[str, Any] = {"spec": {}}
WRITES: dict[str, tuple[str, str, Any, Any, str]] = {
    "a daemon writes a spec": (
        "daemon-node-1",
        "nodepodprobes",
        SPEC,
        {"spec": {"podProbes": []}},
        "writes the spec of it",
    ),
    "a daemon writes a pod": (
        "daemon-node-1",
        "pods",
        pod(),
        pod(),
        "writes pods it",
    ),
    "a manager writes results": (
        "manager-1",
        "nodepodprobes",
        SPEC,
        {**SPEC, "status": {}},
        "writes the status of it",
    ),
    "a manager writes the spec of a marker": (
        "manager-1",
        "podprobemarkers",
        SPEC,
        {"spec": {"probes": []}, "metadata": {"name": "it"}},
        "writes the spec of marker it",
    ),
    "a manager writes a native condition": (
        "manager-1",
        "pods",
        pod(),
        pod(status=READY),
        "writes condition Ready of pod it",
    ),
    "a manager writes a label of the user": (
        "manager-1",
        "pods",
        pod(),
        pod(metadata={"uid": "u", "labels": {"app": "x"}}),
        "writes labels ['app'] of pod it",
    ),
    "a manager deletes a pod": (
        "manager-1",
        "pods",
        pod(),
        None,
        "writes pod it or its spec",
    ),
}


@cases("writer resource old new problem", **WRITES)
def test_safety_names_who_writes_the_field_of_another(
    writer: str,
    resource: str,
    old: Any,
    new: Any,
    problem: str,
) -> None:
    commit = Commit(1, writer, resource, "it", old, new)
    assert problem in reported(lambda safety: safety.check(commit))


@pytest.mark.parametrize("verb", ["list", "watch"])
def test_safety_names_who_reads_at_version_0(verb: str) -> None:
    def read(safety: Safety) -> None:
        for version in ("", "7", "0"):
            safety.sent(Sent("manager-1", verb, "pods", "", version))

    assert "manager-1 reads pods at version 0" in reported(read)


def reported(happens: Callable[[Safety], None]) -> str:
    """The one problem that Safety reports."""

    async def judged() -> list[str]:
        safety = Safety(World(0))
        happens(safety)
        return safety.problems

    with simulated(0) as loop:
        (found,) = loop.run_until_complete(judged())
    return found
