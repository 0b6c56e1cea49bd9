"""When containers start and stop, and how their pod stands."""

from typing import Any

import pytest
from support.node_records import node_pod, record, records, sidecar

from kruise_probe_playground.node.lifecycle import (
    HEALTHY_SECONDS,
    Plan,
    final_phase,
    initialized,
    phase,
    plan,
)


@pytest.mark.parametrize(
    ("pod", "how", "start"),
    [
        pytest.param(node_pod("a", "b"), {}, ("a", "b"), id="all-at-once"),
        pytest.param(node_pod("a"), {"a": "0"}, ("a",), id="always-restarts-success"),
        pytest.param(node_pod("a", restartPolicy="Never"), {"a": "1"}, (), id="never"),
        pytest.param(node_pod("a", "b", restartPolicy="OnFailure"), {"a": "1", "b": "0"}, ("a",), id="on-failure"),
        pytest.param(node_pod("a", init=["i", "j"]), {}, ("i",), id="first-init-first"),
        pytest.param(node_pod("a", init=["i", "j"]), {"i": "running"}, (), id="waits-for-init"),
        pytest.param(node_pod("a", init=["i", "j"]), {"i": "0"}, ("j",), id="next-init"),
        pytest.param(node_pod("a", init=["i"]), {"i": "1"}, ("i",), id="init-again"),
        pytest.param(node_pod("a", init=[sidecar("s"), "i"]), {}, ("s",), id="sidecar-in-its-turn"),
        pytest.param(node_pod("a", init=[sidecar("s"), "i"]), {"s": "running"}, ("i",), id="sidecar-started"),
        pytest.param(
            node_pod("a", init=[sidecar("s")]), {"s": "0", "a": "running"}, ("s",), id="sidecar-again"
        ),
    ],
)  # fmt: skip
def test_plan_starts_the_next_containers(
    pod: Any, how: dict[str, str], start: tuple[str, ...]
) -> None:
    assert plan(pod.spec, records(pod, **how), loop_time=100) == Plan(start, (), None)


def test_sidecar_that_has_not_started_blocks_later_containers() -> None:
    pod = node_pod("a", init=[sidecar("s")])
    side, main = pod.spec.all_containers()
    known = {"s": record(side, "running", started=False), "a": record(main)}
    assert plan(pod.spec, known, loop_time=0).start == ()


def test_container_in_backoff_has_a_wake_deadline() -> None:
    pod = node_pod("a", "b")
    deadlines = {"a": 105.0, "b": 103.0}
    known = {
        each.name: record(each, "1", restart_deadline=deadlines[each.name])
        for each in pod.spec.containers
    }
    assert plan(pod.spec, known, loop_time=104) == Plan(("b",), (), 105.0)


def test_sidecars_stop_when_the_containers_have_ended() -> None:
    pod = node_pod("a", init=[sidecar("s")], restartPolicy="Never")
    assert plan(pod.spec, records(pod, s="running", a="0"), loop_time=0) == Plan((), ("s",), None)


@pytest.mark.parametrize(
    ("pod", "how", "expected"),
    [
        pytest.param(node_pod("a", init=["i"]), {}, (None, "Pending", False), id="nothing-yet"),
        pytest.param(node_pod("a"), {"a": "running"}, (None, "Running", True), id="running"),
        pytest.param(node_pod("a"), {"a": "1"}, (None, "Running", True), id="will-restart"),
        pytest.param(node_pod("a", "b"), {"a": "running"}, (None, "Pending", True), id="one-is-missing"),
        pytest.param(
            node_pod("a", restartPolicy="Never"), {"a": "0"}, ("Succeeded", "Succeeded", True), id="succeeded"
        ),
        pytest.param(
            node_pod("a", "b", restartPolicy="Never"),
            {"a": "0", "b": "2"},
            ("Failed", "Failed", True),
            id="one-failed",
        ),
        pytest.param(
            node_pod("a", init=["i"], restartPolicy="Never"),
            {"i": "1"},
            ("Failed", "Failed", False),
            id="init-failed-for-good",
        ),
    ],
)  # fmt: skip
def test_phase_follows_the_containers(
    pod: Any, how: dict[str, str], expected: tuple[object, ...]
) -> None:
    known = records(pod, **how)
    assert expected == (
        final_phase(pod.spec, known),
        phase(pod.spec, known),
        initialized(pod.spec, known),
    )


@pytest.mark.parametrize(
    ("ran_seconds", "deadline"),
    [
        pytest.param(1.0, 100 + 1.0 + 2, id="short-runs-add-up"),
        pytest.param(HEALTHY_SECONDS, 100 + HEALTHY_SECONDS, id="a-long-run-forgives"),
    ],
)
def test_backoff_counts_consecutive_quick_ends(ran_seconds: float, deadline: float) -> None:
    ended = record(node_pod("a").spec.containers[0], "1")
    ended.quick_ends = 2
    ended.began = 100.0
    ended.note_end(loop_time=100 + ran_seconds)
    assert ended.restart_deadline == deadline
    assert not ended.started
