"""When the check has seen enough."""

from typing import Any

import msgspec
import pytest
from support.builders import condition_wire, policy_wire, probe_wire, state_wire
from support.snapshots import healthy_pod, marker, snapshot

from kruise_probe_playground.check import Progress
from kruise_probe_playground.ticker import POD_EVENTS, PodEvent

KIND = "example.com/healthy"
POLICIES = (
    policy_wire("Succeeded", {"state": "idle"}, {"cost": "-1"}),
    policy_wire("Failed", {"state": "busy"}, {"look": "here"}),
)
UID = "uid-default-web"


def web(status: str | None = None, labels: Any = None, annotations: Any = None) -> Any:
    conditions = [condition_wire(KIND, status)] if status else []
    labels = {"app": "web", **(labels or {})}
    return healthy_pod("web", conditions=conditions, labels=labels, annotations=annotations)


def event(reason: str, uid: str = UID, probe: str = "web#healthy") -> PodEvent:
    wire = {
        "metadata": {"name": f"{reason}-{uid}"},
        "involvedObject": {"kind": "Pod", "uid": uid},
        "reason": reason,
        "message": f"{probe}: fine",
    }
    return POD_EVENTS.decode(msgspec.json.encode(wire))


GOOD = (state_wire(state="Succeeded"),)
BAD = (state_wire(state="Failed"),)
EVENTS = (event("KruiseProbeSucceeded"), event("KruiseProbeFailed"))


def progress(*looks: Any, wanted: int = 2, **more: Any) -> Progress:
    found = Progress(wanted=wanted)
    for pod, states, events in looks:
        found.observe(snapshot(markers=[marker(**more)], pods=[pod], states=states), events)
    return found


@pytest.mark.parametrize(
    ("looks", "seen"),
    [
        pytest.param([(web("True"), GOOD, EVENTS)], ["Succeeded"], id="one-state"),
        pytest.param([(web("True"), GOOD, EVENTS), (web("False"), BAD, EVENTS)], ["Succeeded", "Failed"], id="both"),
        pytest.param([(web("False"), BAD, EVENTS), (web("True"), GOOD, EVENTS)], ["Succeeded", "Failed"], id="any-order"),
        pytest.param([(web("True"), GOOD, ())], [], id="no-event"),
        pytest.param([(web("True"), (), EVENTS)], [], id="not-reported"),
        pytest.param([(web(), GOOD, EVENTS)], [], id="not-on-the-pod"),
        pytest.param([(web("False"), GOOD, EVENTS)], [], id="other-condition"),
        pytest.param([(web("True"), GOOD, ()), (web(), (), EVENTS)], ["Succeeded"], id="evidence-adds-up"),
        pytest.param([(web("True"), GOOD, [event("KruiseProbeSucceeded", uid="other")])], [], id="another-pods-event"),
    ],
)  # fmt: skip
def test_state_needs_report_marks_and_event(looks: Any, seen: list[str]) -> None:
    assert list(progress(*looks).seen().values()) == [seen]


VALUE = policy_wire("Succeeded", {"role": "none"}, from_message=[{"label": "role"}])


@pytest.mark.parametrize(
    ("policies", "labels", "annotations", "seen"),
    [
        pytest.param(POLICIES, {"state": "idle"}, {"cost": "-1"}, ["Succeeded"], id="all"),
        pytest.param(POLICIES, {"state": "idle"}, {}, [], id="annotation-missing"),
        pytest.param(POLICIES, {"state": "busy"}, {"cost": "-1"}, [], id="wrong-value"),
        pytest.param(POLICIES, {"state": "idle"}, {"cost": "-1", "look": "here"}, [], id="key-of-the-other-state"),
        pytest.param([VALUE], {"role": "main"}, {}, ["Succeeded"], id="value-from-the-message"),
        pytest.param([VALUE], {"role": "old"}, {}, [], id="another-value"),
    ],
)  # fmt: skip
def test_state_needs_all_of_its_marks(
    policies: Any, labels: Any, annotations: Any, seen: list[str]
) -> None:
    result = (state_wire(state="Succeeded", message="main"),)
    look = (web("True", labels, annotations), result, EVENTS)
    found = progress(look, probes=[probe_wire(policies=policies)])
    assert list(found.seen().values()) == [seen]


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
        pytest.param([(web(), (), ())], "1 of 1 probes have no result", id="silent"),
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


OTHER = "example.com/other"
ALONE = probe_wire("alone", condition="example.com/alone")


def test_probes_of_two_markers_with_one_name_are_listed_with_their_markers() -> None:
    """Each needs an event of its own."""
    markers = [
        marker(probes=[probe_wire(), ALONE]),
        marker(name="other", probes=[probe_wire(condition=OTHER)]),
    ]
    pod = healthy_pod("web", conditions=[condition_wire(KIND), condition_wire(OTHER)])
    states = [state_wire("web#healthy"), state_wire("other#healthy")]
    now = snapshot(markers=markers, pods=[pod], states=states)
    found = Progress(wanted=1)
    seen: dict[str, list[str]] = {"web/other#healthy": [], "web/alone": [], "web/web#healthy": []}
    for name in ("web#healthy", "other#healthy"):
        found.observe(now, [event("KruiseProbeSucceeded", probe=name)])
        seen |= {f"web/{name}": ["Succeeded"]}
        assert found.as_json(seconds=1)["seen"] == seen
    assert found.as_json(seconds=1)["probes"] == 3
