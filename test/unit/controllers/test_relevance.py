"""Which updates of a pod enqueue what: the compared fields are those that the decisions read."""

from typing import Any, NamedTuple

import msgspec
import pytest
from support.builders import (
    condition_wire,
    container_wire,
    marker,
    owned_fields,
    pod,
    policy_wire,
    probe_wire,
    state,
    states,
)
from support.computations import at_once
from support.running_manager import START

from kruise_probe.api.pods import Mark, Pod, PodCondition
from kruise_probe.controllers.claims import claims_of
from kruise_probe.controllers.compiled import compile_marker
from kruise_probe.controllers.marking import Changes, PodResults, marking
from kruise_probe.controllers.matching import Matching
from kruise_probe.controllers.plan import plan_steps
from kruise_probe.controllers.relevance import PodChange, change_of, changes_entry

C = "example.com/healthy"
PROBES = [
    probe_wire(
        policies=[policy_wire("Succeeded", {"mine": "1"}, {"ours": "1"})],
        handler={"tcpSocket": {"port": "http"}},
    )
    | {"exclusive": {"groupByLabel": "shard"}}
]
MARKER = compile_marker(marker(probes=PROBES))
CLAIMS = claims_of((MARKER,))
OURS = owned_fields(labels=["mine"], annotations=["ours"], conditions=[C])
POD = pod(
    labels={"app": "web", "mine": "1"},
    annotations={"ours": "1"},
    conditions=[condition_wire(C)],
    containers=[container_wire(ports={"http": 80}, startup_probe=True)],
    started=["main"],
    owned=OURS,
)
RESULTS = {
    "succeeded": PodResults(states(state())),
    "failed": PodResults(states(state(state="Failed"))),
    "none": PodResults(),
    "stale": PodResults(why_stale="no Lease"),
}


class Field(NamedTuple):
    """A value of a field, and what it may change."""

    value: Any
    change: PodChange


NOTHING = PodChange(entry=False, marks=False)
MARKS = PodChange(entry=False, marks=True)
ENTRY = PodChange(entry=True, marks=False)
BOTH = PodChange(entry=True, marks=True)

OTHER_CONDITION = PodCondition("example.com/other", "True")
OTHER_MARK = frozenset({Mark("labels", "theirs")})
FIELDS: dict[str, list[Field]] = {
    "resource_version": [Field("2", NOTHING)],
    "labels": [
        Field({"app": "web", "mine": "1", "theirs": "1"}, NOTHING),
        Field({"app": "web", "mine": "2"}, MARKS),
        Field({"app": "web", "mine": "1", "shard": "a"}, MARKS),
        Field({"app": "web"}, MARKS),
    ],
    "annotations": [
        Field({"ours": "1", "theirs": "1"}, NOTHING),
        Field({"ours": "2"}, MARKS),
        Field({"ours": "1", "kruise-probe.io/paused": "true"}, BOTH),
    ],
    "node": [Field("node-2", BOTH)],
    "ip": [Field("127.9.9.9", ENTRY)],
    "phase": [Field("Pending", NOTHING), Field("Succeeded", BOTH), Field("Failed", BOTH)],
    "deleting": [Field(True, BOTH)],
    "mirror": [Field(True, BOTH)],
    "initialized": [Field(False, BOTH)],
    "containers": [Field(pod(containers=[container_wire("other")]).containers, BOTH)],
    "started": [Field(frozenset(), ENTRY)],
    "readiness_gates": [Field(frozenset({C}), MARKS)],
    "conditions": [
        Field((*POD.conditions, OTHER_CONDITION), NOTHING),
        Field((PodCondition(C, "False"),), MARKS),
        Field((), MARKS),
    ],
    "owned": [Field(frozenset({Mark("labels", "mine")}), MARKS)],
    "merged": [Field(frozenset({Mark("conditions", C)}), MARKS)],
    "owned_by_others": [Field(OTHER_MARK, NOTHING)],
    "writers": [Field(((OTHER_MARK, "kubectl"),), NOTHING)],
    "exit_codes": [Field({"main": 1}, MARKS)],
}
"""Of each field of a decoded pod but its identity."""

EACH = [
    pytest.param(name, field, id=f"{name}-{number}")
    for name, fields in FIELDS.items()
    for number, field in enumerate(fields)
]


def entries(of: Pod) -> object:
    """What goes into the NodePodProbes of all nodes."""
    matching = Matching(lambda _: [of])
    matching.set_marker(MARKER)
    return of.node, at_once(plan_steps([of], matching.considered_of, ())).entries


def all_changes(of: Pod) -> list[Changes | None]:
    """What `marking` decides on any results."""
    return [marking(of, CLAIMS, results, now=START) for results in RESULTS.values()]


@pytest.mark.parametrize(("name", "field"), EACH)
def test_a_field_enqueues_what_it_may_change(name: str, field: Field) -> None:
    changed = msgspec.structs.replace(POD, **{name: field.value})
    assert change_of(POD, changed, CLAIMS) == field.change
    assert changes_entry(POD, changed) == field.change.entry
    if not field.change.entry:
        assert entries(changed) == entries(POD)
    if not field.change.marks:
        assert all_changes(changed) == all_changes(POD)


def test_every_field_of_a_pod_is_decided_on() -> None:
    identity = {"key", "uid"}
    assert {*FIELDS} == {*Pod.__struct_fields__} - identity
