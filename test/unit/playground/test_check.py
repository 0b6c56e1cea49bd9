"""When the check has seen enough."""

from typing import Any

import msgspec
import pytest
from support.builders import condition_wire, state_wire
from support.snapshots import healthy_pod, marker, snapshot

from kruise_probe_playground.check import Progress
from kruise_probe_playground.ticker import POD_EVENTS, PodEvent

KIND = "example.com/healthy"
UID = "uid-default-web"


def web(status: str | None = None) -> Any:
    conditions = [condition_wire(KIND, status)] if status else []
    return healthy_pod("web", conditions=conditions)


def event(reason: str, uid: str = UID) -> PodEvent:
    wire = {
        "metadata": {"name": f"{reason}-{uid}"},
        "involvedObject": {"kind": "Pod", "uid": uid},
        "reason": reason,
        "message": "web#healthy: fine",
    }
    return POD_EVENTS.decode(msgspec.json.encode(wire))


GOOD = (state_wire(state="Succeeded"),)
BAD = (state_wire(state="Failed"),)
EVENTS = (event("KruiseProbeSucceeded"), event("KruiseProbeFailed"))


def progress(*looks: Any) -> Progress:
    found = Progress(wanted=2)
    for pod, states, events in looks:
        found.observe(snapshot(markers=[marker()], pods=[pod], states=states), events)
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


def test_an_incomplete_check_lists_what_is_missing() -> None:
    assert progress().missing().startswith("no marker selects a pod; compare its selector")
    found = progress((web("True"), GOOD, ()))
    assert not found.complete
    expected = "web/healthy (Succeeded has no event; Failed has no event, marks, report)"
    assert found.missing() == expected
