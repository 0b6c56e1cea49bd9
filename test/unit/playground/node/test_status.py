"""The status that the node writes."""

from datetime import timedelta
from typing import Any

import pytest
from support.builders import condition_wire
from support.node_records import AT, node_pod, record, records

from kruise_probe_playground.node.lifecycle import ContainerRecord
from kruise_probe_playground.node.status import MESSAGE_BYTES, pod_status

GATE = "example.com/gate"


def status(
    pod: Any, known: dict[str, ContainerRecord], *, before: Any = None, later: int = 0
) -> Any:
    return pod_status(
        pod,
        known,
        "127.10.1.1",
        "127.10.0.1",
        before=before or {},
        now=AT + timedelta(seconds=later),
    )


def condition(found: Any, kind: str) -> tuple[str, str | None, str | None]:
    each = next(each for each in found["conditions"] if each["type"] == kind)
    return each["status"], each["reason"], each["message"]


UNREADY = ("False", "ContainersNotReady", "containers with unready status: [b c]")
ABSENT = f'corresponding condition of pod readiness gate "{GATE}" does not exist.'
FALSE = f'the status of pod readiness gate "{GATE}" is not "True", but False'
READY = ("True", None, None)


def gated(*conditions: Any) -> Any:
    gates = [{"conditionType": GATE}]
    return node_pod("a", readinessGates=gates, status={"conditions": list(conditions)})


@pytest.mark.parametrize(
    ("pod", "how", "containers", "ready"),
    [
        pytest.param(gated(), {"a": "running"}, READY, ("False", "ReadinessGatesNotReady", ABSENT), id="gate-absent"),
        pytest.param(gated(condition_wire(GATE, "False")), {"a": "running"}, READY, ("False", "ReadinessGatesNotReady", FALSE), id="gate-false"),
        pytest.param(gated(condition_wire(GATE)), {"a": "running"}, READY, READY, id="gate-true"),
        pytest.param(node_pod("a", "b", "c"), {"a": "running"}, UNREADY, UNREADY, id="unready-containers-are-named"),
        pytest.param(node_pod("a", restartPolicy="Never"), {"a": "0"}, None, ("False", "PodCompleted", ""), id="completed"),
    ],
)  # fmt: skip
def test_readiness_is_that_of_the_containers_and_waits_for_the_gates(
    pod: Any, how: dict[str, str], containers: object, ready: object
) -> None:
    found = status(pod, records(pod, **how))
    assert condition(found, "Ready") == ready
    assert containers in (None, condition(found, "ContainersReady"))


def test_transition_times_change_only_with_the_status() -> None:
    pod = node_pod("a")
    first = status(pod, records(pod))
    second = status(pod, records(pod, a="running"), before=first, later=5)
    times = {each["type"]: each["lastTransitionTime"] for each in second["conditions"]}
    assert (times["Initialized"], times["Ready"]) == (
        "2026-01-01T00:00:00Z",
        "2026-01-01T00:00:05Z",
    )
    assert second["startTime"] == "2026-01-01T00:00:00Z"
    assert status(pod, records(pod, a="running"), before=second, later=60) == second


@pytest.mark.parametrize(
    ("known", "state"),
    [
        pytest.param({}, {"waiting": {"reason": "PodInitializing"}}, id="waits-for-init"),
        pytest.param({"i": "0"}, {"waiting": {"reason": "ContainerCreating"}}, id="is-next"),
    ],
)
def test_waiting_container_has_a_reason(known: dict[str, str], state: Any) -> None:
    pod = node_pod("a", init=["i"])
    assert status(pod, records(pod, **known))["containerStatuses"][0]["state"] == state


def test_terminating_pod_shows_no_backoff() -> None:
    pod = node_pod("a", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    ended = record(pod.spec.containers[0], "3")
    ended.quick_ends = 3
    found = status(pod, {"a": ended})["containerStatuses"][0]
    assert found["state"]["terminated"]["reason"] == "Error"


@pytest.mark.parametrize(("exit_code", "has_message"), [("3", True), ("0", False)])
def test_message_of_a_failed_container_is_the_last_line_of_its_log(
    exit_code: str, has_message: bool
) -> None:
    pod = node_pod("a", restartPolicy="Never")
    ended = record(pod.spec.containers[0], exit_code)
    assert ended.current
    ended.current.log.take(b"Traceback\nValueError: " + "é".encode() * MESSAGE_BYTES + b"\n")
    found = status(pod, {"a": ended})["containerStatuses"][0]["state"]["terminated"]
    assert ("message" in found) is has_message
    if has_message:
        assert found["message"].startswith("ValueError: é")
        assert len(found["message"].encode()) in (MESSAGE_BYTES - 1, MESSAGE_BYTES)
