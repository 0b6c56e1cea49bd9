"""When `playground --check` is complete."""

import msgspec
from support.builders import condition_wire, state_wire
from support.cases import cases
from support.snapshots import healthy_pod, snapshot
from support.wire import Json

from kruise_probe_playground.check import Progress
from kruise_probe_playground.ticker import POD_EVENTS, PodEvent

KIND = "example.com/healthy"
UID = "uid-default-web"


ABSENT = healthy_pod("web", conditions=[])
TRUE = healthy_pod("web", conditions=[condition_wire(KIND, "True")])
FALSE = healthy_pod("web", conditions=[condition_wire(KIND, "False")])


def event(reason: str, uid: str = UID) -> PodEvent:
    wire = {
        "metadata": {"name": f"{reason}-{uid}"},
        "involvedObject": {"kind": "Pod", "uid": uid},
        "reason": reason,
        "message": "web#healthy: fine",
    }
    return POD_EVENTS.decode(msgspec.json.encode(wire))


GOOD = [state_wire()]
BAD = [state_wire(state="Failed")]
EVENTS = [event("KruiseProbeSucceeded"), event("KruiseProbeFailed")]
OF_ANOTHER_POD = [event("KruiseProbeSucceeded", uid="other")]
Look = tuple[Json, list[Json], list[PodEvent]]
"""A pod, the results of its node, and the events."""


def progress(*looks: Look) -> Progress:
    found = Progress(wanted=2)
    for pod, states, events in looks:
        found.observe(snapshot(pods=[pod], states=states), events)
    return found


@cases(
    "looks seen",
    both=([(TRUE, GOOD, EVENTS), (FALSE, BAD, EVENTS)], ["Succeeded", "Failed"]),
    no_event=([(TRUE, GOOD, [])], []),
    not_reported=([(TRUE, [], EVENTS)], []),
    not_on_the_pod=([(ABSENT, GOOD, EVENTS)], []),
    evidence_adds_up=([(TRUE, GOOD, []), (ABSENT, [], EVENTS)], ["Succeeded"]),
    another_pods_event=([(TRUE, GOOD, OF_ANOTHER_POD)], []),
)
def test_state_needs_report_marks_and_event(looks: list[Look], seen: list[str]) -> None:
    (found,) = progress(*looks).seen().values()
    assert found == seen


def test_an_incomplete_check_lists_what_is_missing() -> None:
    assert progress().missing().startswith("no marker selects a pod; compare its selector")
    found = progress((TRUE, GOOD, []))
    assert not found.complete
    assert found.missing() == (
        "web/healthy (Succeeded has no event; Failed has no event, marks, report)"
    )
