"""The status that the node writes."""

from datetime import timedelta
from typing import Any

import pytest
from support.node_records import AT, node_pod, record, records

from kruise_probe_playground.node.lifecycle import ContainerRecord
from kruise_probe_playground.node.status import MESSAGE_BYTES, Place, pod_status

PLACE = Place("127.10.1.1", "127.10.0.1")
GATE = "example.com/gate"


def status(
    pod: Any, known: dict[str, ContainerRecord], *, before: Any = None, later: int = 0
) -> Any:
    return pod_status(pod, known, PLACE, before=before or {}, now=AT + timedelta(seconds=later))


def condition(found: Any, kind: str) -> tuple[str, str | None, str | None]:
    each = next(each for each in found["conditions"] if each["type"] == kind)
    return each["status"], each["reason"], each["message"]


@pytest.mark.parametrize(
    ("gate", "expected"),
    [
        pytest.param(
            None,
            ("False", "ReadinessGatesNotReady", f'corresponding condition of pod readiness gate "{GATE}" does not exist.'),
            id="absent",
        ),
        pytest.param(
            "False",
            ("False", "ReadinessGatesNotReady", f'the status of pod readiness gate "{GATE}" is not "True", but False'),
            id="false",
        ),
        pytest.param("True", ("True", None, None), id="true"),
    ],
)  # fmt: skip
def test_readiness_waits_for_the_gates(gate: str | None, expected: tuple[str, ...]) -> None:
    conditions = [{"type": GATE, "status": gate}] if gate else []
    pod = node_pod("a", readinessGates=[{"conditionType": GATE}], status={"conditions": conditions})
    found = status(pod, records(pod, a="running"))
    assert condition(found, "Ready") == expected
    assert condition(found, "ContainersReady") == ("True", None, None)


def test_unready_containers_are_named() -> None:
    pod = node_pod("a", "b", "c")
    found = status(pod, records(pod, a="running"))
    message = "containers with unready status: [b c]"
    assert condition(found, "ContainersReady") == ("False", "ContainersNotReady", message)
    assert condition(found, "Ready") == ("False", "ContainersNotReady", message)


def test_completed_pod_is_not_ready() -> None:
    pod = node_pod("a", restartPolicy="Never")
    assert condition(status(pod, records(pod, a="0")), "Ready") == ("False", "PodCompleted", "")


def test_transition_times_change_only_with_the_status() -> None:
    pod = node_pod("a")
    first = status(pod, records(pod))
    second = status(pod, records(pod, a="running"), before=first, later=5)
    times = {each["type"]: each["lastTransitionTime"] for each in second["conditions"]}
    assert times["Initialized"] == "2026-01-01T00:00:00Z"
    assert times["Ready"] == "2026-01-01T00:00:05Z"
    assert second["startTime"] == "2026-01-01T00:00:00Z"


def test_status_is_stable_without_changes() -> None:
    pod = node_pod("a")
    first = status(pod, records(pod, a="running"))
    assert status(pod, records(pod, a="running"), before=first, later=60) == first


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


def test_message_of_a_failed_container_is_the_last_line_of_its_log() -> None:
    pod = node_pod("a", restartPolicy="Never")
    failed = record(pod.spec.containers[0], "3")
    assert failed.current
    failed.current.log.take(b"Traceback\nValueError: " + "\u00e9".encode() * MESSAGE_BYTES + b"\n")
    found = status(pod, {"a": failed})["containerStatuses"][0]["state"]["terminated"]["message"]
    assert found.startswith("ValueError: \u00e9")
    assert len(found.encode()) in (MESSAGE_BYTES - 1, MESSAGE_BYTES)


def test_completed_container_has_no_message() -> None:
    pod = node_pod("a", restartPolicy="Never")
    completed = record(pod.spec.containers[0], "0")
    assert completed.current
    completed.current.log.take(b"bye\n")
    found = status(pod, {"a": completed})["containerStatuses"][0]["state"]["terminated"]
    assert "message" not in found
