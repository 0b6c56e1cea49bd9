"""When the check has seen enough."""

from typing import Any

import msgspec
import pytest
from support.builders import condition_wire, policy_wire, probe_wire, state_wire
from support.snapshots import healthy_pod, marker, snapshot

from kruise_probe_playground.check import Progress
from kruise_probe_playground.ticker import POD_EVENTS, PodEvent

KIND = "example.com/healthy"
POLICIES = (policy_wire("Succeeded", {"state": "idle"}, {"cost": "-1"}),)
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
        pytest.param([(web("True"), GOOD, EVENTS), (web("False"), BAD, EVENTS)], ["Succeeded", "Failed"], id="both"),
        pytest.param([(web("True"), GOOD, ())], [], id="no-event"),
        pytest.param([(web("True"), (), EVENTS)], [], id="not-reported"),
        pytest.param([(web(), GOOD, EVENTS)], [], id="not-on-the-pod"),
        pytest.param([(web("True"), GOOD, ()), (web(), (), EVENTS)], ["Succeeded"], id="evidence-adds-up"),
        pytest.param([(web("True"), GOOD, [event("KruiseProbeSucceeded", uid="other")])], [], id="another-pods-event"),
    ],
)  # fmt: skip
def test_state_needs_report_marks_and_event(looks: Any, seen: list[str]) -> None:
    assert list(progress(*looks).seen().values()) == [seen]


def test_state_needs_all_of_its_marks() -> None:
    for annotations, seen in (({"cost": "-1"}, ["Succeeded"]), ({}, [])):
        look = (web("True", {"state": "idle"}, annotations), GOOD, EVENTS)
        found = progress(look, probes=[probe_wire(policies=POLICIES)])
        assert list(found.seen().values()) == [seen]


@pytest.mark.parametrize(
    ("looks", "why"),
    [
        pytest.param([], "no marker selects a pod; compare its selector with the labels of the pods", id="no-pods"),
        pytest.param([(web("True"), GOOD, EVENTS)], "web/healthy (Failed has no marks, report)", id="one-state"),
        pytest.param(
            [(web("True"), GOOD, ())],
            "web/healthy (Succeeded has no event; Failed has no event, marks, report)",
            id="no-event",
        ),
    ],
)  # fmt: skip
def test_incomplete_check_lists_what_is_missing(looks: Any, why: str) -> None:
    found = progress(*looks)
    assert not found.complete
    assert found.missing() == why


def test_result_has_the_documented_fields_and_names_probes_of_one_name_by_their_markers() -> None:
    """Each needs an event of its own."""
    other = "example.com/other"
    alone = probe_wire("alone", condition="example.com/alone")
    markers = [
        marker(probes=[probe_wire(), alone]),
        marker(name="other", probes=[probe_wire(condition=other)]),
    ]
    pod = healthy_pod("web", conditions=[condition_wire(KIND), condition_wire(other)])
    states = [state_wire("web#healthy"), state_wire("other#healthy")]
    now = snapshot(markers=markers, pods=[pod], states=states)
    found = Progress(wanted=1)
    found.observe(now, [event("KruiseProbeSucceeded", probe="web#healthy")])
    seen = {"web/other#healthy": [], "web/alone": [], "web/web#healthy": ["Succeeded"]}
    counts = {"ok": False, "seconds": 4.3, "pods": 1, "probes": 3}
    assert found.as_json(seconds=4.26) == {**counts, "seen": seen}
