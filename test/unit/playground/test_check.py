"""When the check has seen enough."""

from typing import Any

import msgspec
import pytest
from support.builders import (
    condition_wire,
    marker,
    npp,
    pod_status_wire,
    policy_wire,
    probe_wire,
    state_wire,
)
from support.node_records import node_pod

from kruise_probe.api.v1alpha1 import PodContainerProbe, ProbeState
from kruise_probe_playground.check import Progress, shows
from kruise_probe_playground.ticker import POD_EVENTS, PodEvent

KIND = "example.com/healthy"
BOTH = (
    policy_wire("Succeeded", {"state": "idle"}, {"cost": "-1"}),
    policy_wire("Failed", {"state": "busy"}, {"look": "here"}),
)
ONE = (policy_wire("Succeeded", {"open": "yes"}),)


ROLE = (policy_wire("Succeeded", {"role": "none"}, from_message=[{"label": "role"}]),)


def web(status: str | None = None, labels: Any = None, annotations: Any = None) -> Any:
    conditions = [condition_wire(KIND, status)] if status else []
    metadata = {"labels": {"app": "web", **(labels or {})}, "annotations": annotations or {}}
    return node_pod("main", metadata=metadata, status={"conditions": conditions})


def event(reason: str, *, uid: str = "uid-1", probe: str = "web#healthy") -> PodEvent:
    wire = {
        "metadata": {"name": f"{reason}-{uid}"},
        "involvedObject": {"kind": "Pod", "uid": uid},
        "reason": reason,
        "message": f"{probe}: fine",
    }
    return POD_EVENTS.decode(msgspec.json.encode(wire))


def report(*states: Any) -> Any:
    meta = {"name": "web", "namespace": "default", "uid": "uid-1"}
    return npp(statuses=[pod_status_wire({"metadata": meta}, *states)])


@pytest.mark.parametrize(
    ("pod", "policies", "state", "expected"),
    [
        pytest.param(web("True"), (), ProbeState.SUCCEEDED, True, id="condition"),
        pytest.param(web("False"), (), ProbeState.SUCCEEDED, False, id="other-condition"),
        pytest.param(web(), (), ProbeState.FAILED, False, id="no-condition"),
        pytest.param(web("True", {"state": "idle"}, {"cost": "-1"}), BOTH, ProbeState.SUCCEEDED, True, id="marked"),
        pytest.param(web("True", {"state": "idle"}), BOTH, ProbeState.SUCCEEDED, False, id="annotation-missing"),
        pytest.param(web("True", {"state": "busy"}, {"cost": "-1"}), BOTH, ProbeState.SUCCEEDED, False, id="wrong-value"),
        pytest.param(
            web("True", {"state": "idle"}, {"cost": "-1", "look": "here"}), BOTH, ProbeState.SUCCEEDED, False,
            id="the-others-own-key-is-left",
        ),
        pytest.param(web("False"), ONE, ProbeState.FAILED, True, id="single-policy-gone"),
        pytest.param(web("False", {"open": "yes"}), ONE, ProbeState.FAILED, False, id="single-policy-left"),
        pytest.param(web("True", {"role": "any"}), ROLE, ProbeState.SUCCEEDED, True, id="any-value-from-a-message"),
        pytest.param(web("False", {"role": "any"}), ROLE, ProbeState.FAILED, False, id="value-from-a-message-left"),
    ],
)  # fmt: skip
def test_state_shows_with_all_of_its_marks(
    pod: Any, policies: Any, state: ProbeState, expected: bool
) -> None:
    probe = msgspec.convert(probe_wire(policies=policies), PodContainerProbe)
    assert shows(pod, probe, state) is expected


GOOD = report(state_wire(state="Succeeded"))
BAD = report(state_wire(state="Failed"))
EVENTS = (event("KruiseProbeSucceeded"), event("KruiseProbeFailed"))


def progress(*looks: Any, wanted: int = 2) -> Progress:
    found = Progress(wanted=wanted)
    for pod, seen, events in looks:
        found.observe([pod], [marker()], [seen], events)
    return found


@pytest.mark.parametrize(
    ("looks", "seen"),
    [
        pytest.param([(web("True"), GOOD, EVENTS)], ["Succeeded"], id="one-state"),
        pytest.param([(web("True"), GOOD, EVENTS), (web("False"), BAD, EVENTS)], ["Succeeded", "Failed"], id="both"),
        pytest.param([(web("False"), BAD, EVENTS), (web("True"), GOOD, EVENTS)], ["Succeeded", "Failed"], id="any-order"),
        pytest.param([(web("True"), GOOD, ())], [], id="no-event"),
        pytest.param([(web("True"), report(), EVENTS)], [], id="not-reported"),
        pytest.param([(web(), GOOD, EVENTS)], [], id="not-on-the-pod"),
        pytest.param([(web(), GOOD, ()), (web("True"), report(), ()), (web(), GOOD, EVENTS)], ["Succeeded"], id="traces-add-up"),
        pytest.param([(web("True"), GOOD, [event("KruiseProbeSucceeded", uid="other")])], [], id="another-pods-event"),
    ],
)  # fmt: skip
def test_state_needs_report_marks_and_event(looks: Any, seen: list[str]) -> None:
    assert list(progress(*looks).seen().values()) == [seen]


def test_each_reported_probe_needs_an_event() -> None:
    two = marker(probes=[probe_wire("a"), probe_wire("b", condition="example.com/b")])
    pod = node_pod(
        "main",
        metadata={"labels": {"app": "web"}},
        status={
            "conditions": [condition_wire(KIND, "True"), condition_wire("example.com/b", "True")]
        },
    )
    reported = report(state_wire("web#a"), state_wire("web#b"))
    found = Progress(wanted=1)
    found.observe([pod], [two], [reported], [event("KruiseProbeSucceeded", probe="web#a")])
    assert not found.complete
    found.observe([pod], [two], [reported], [event("KruiseProbeSucceeded", probe="web#b")])
    assert found.complete


def test_result_has_the_documented_fields() -> None:
    found = progress((web("True"), GOOD, EVENTS), (web("False"), BAD, EVENTS))
    assert found.as_json(seconds=4.26) == {
        "ok": True,
        "seconds": 4.3,
        "pods": 1,
        "probes": 1,
        "seen": {"web/healthy": ["Succeeded", "Failed"]},
    }


@pytest.mark.parametrize(
    ("looks", "why"),
    [
        pytest.param([], "no marker selects a pod; compare its selector with the labels of the pods", id="no-pods"),
        pytest.param([(web(), report(), ())], "1 of 1 probes have no result", id="silent"),
        pytest.param([(web("True"), GOOD, EVENTS)], "web/healthy (Failed has no report and no marks)", id="one-state"),
        pytest.param(
            [(web("True"), GOOD, ())],
            "web/healthy (Succeeded has no event, Failed has no report and no marks and no event)",
            id="no-event",
        ),
    ],
)  # fmt: skip
def test_incomplete_check_lists_what_is_missing(looks: Any, why: str) -> None:
    found = progress(*looks)
    assert not found.complete
    assert found.missing() == why


def test_probe_without_marks_for_a_state_needs_a_report() -> None:
    found = Progress(wanted=1)
    one_policy = marker(probes=[probe_wire(condition=None, policies=ONE)])
    found.observe([web()], [one_policy], [report()], ())
    assert found.missing() == "1 of 1 probes have no result"
