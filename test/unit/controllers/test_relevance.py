"""Which updates of a pod enqueue what: the compared fields are those that the decisions read."""

from typing import Any

import msgspec
import pytest
from support.builders import (
    condition_wire,
    container_wire,
    owned_fields,
    pod,
    policy_wire,
    probe_wire,
    state,
    states,
)
from support.computations import at_once
from support.running_manager import START
from unit.controllers.common import compiled

from kruise_probe.api.pods import Mark, Pod, PodCondition
from kruise_probe.controllers.claims import claims_of
from kruise_probe.controllers.marking import Changes, PodResults, marking
from kruise_probe.controllers.matching import Matching
from kruise_probe.controllers.plan import plan_steps
from kruise_probe.controllers.relevance import PodChange, change_of, changes_entry

C = "example.com/healthy"
PROBE = probe_wire(
    policies=[policy_wire("Succeeded", {"mine": "1"}, {"ours": "1"})],
    handler={"tcpSocket": {"port": "http"}},
)
MARKER = compiled(PROBE | {"exclusive": {"groupByLabel": "shard"}})
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
RESULTS = [
    PodResults(states(state())),
    PodResults(states(state(state="Failed"))),
    PodResults(),
    PodResults(why_stale="no Lease"),
]

NOTHING = PodChange(entry=False, marks=False)
MARKS = PodChange(entry=False, marks=True)
ENTRY = PodChange(entry=True, marks=False)
BOTH = PodChange(entry=True, marks=True)

OTHER_CONDITION = PodCondition("example.com/other", "True")
OTHER_MARK = frozenset({Mark("labels", "theirs")})
CHANGES: list[tuple[str, Any, PodChange]] = [
    ("resource_version", "2", NOTHING),
    ("labels", {"app": "web", "mine": "1", "theirs": "1"}, NOTHING),
    ("labels", {"app": "web", "mine": "2"}, MARKS),
    ("labels", {"app": "web", "mine": "1", "shard": "a"}, MARKS),
    ("labels", {"app": "web"}, MARKS),
    ("annotations", {"ours": "1", "theirs": "1"}, NOTHING),
    ("annotations", {"ours": "2"}, MARKS),
    ("annotations", {"ours": "1", "kruise-probe.io/paused": "true"}, BOTH),
    ("node", "node-2", BOTH),
    ("ip", "127.9.9.9", ENTRY),
    ("phase", "Pending", NOTHING),
    ("phase", "Succeeded", BOTH),
    ("phase", "Failed", BOTH),
    ("deleting", True, BOTH),
    ("mirror", True, BOTH),
    ("initialized", False, BOTH),
    ("containers", pod(containers=[container_wire("other")]).containers, BOTH),
    ("started", frozenset(), ENTRY),
    ("readiness_gates", frozenset({C}), MARKS),
    ("conditions", (*POD.conditions, OTHER_CONDITION), NOTHING),
    ("conditions", (PodCondition(C, "False"),), MARKS),
    ("conditions", (), MARKS),
    ("owned", frozenset({Mark("labels", "mine")}), MARKS),
    ("merged", frozenset({Mark("conditions", C)}), MARKS),
    ("owned_by_others", OTHER_MARK, NOTHING),
    ("writers", ((OTHER_MARK, "kubectl"),), NOTHING),
    ("exit_codes", {"main": 1}, MARKS),
]
"""Values of each field of a decoded pod, except key and uid, and what they may change."""


def entries(of: Pod) -> object:
    """What goes into the NodePodProbes of all nodes."""
    matching = Matching(lambda _: [of])
    matching.set_marker(MARKER)
    return of.node, at_once(plan_steps([of], matching.considered_of, ())).entries


def all_changes(of: Pod) -> list[Changes | None]:
    """What `marking` decides on any results."""
    return [marking(of, CLAIMS, results, now=START) for results in RESULTS]


@pytest.mark.parametrize(("field", "value", "change"), CHANGES)
def test_a_field_enqueues_what_it_may_change(field: str, value: Any, change: PodChange) -> None:
    changed = msgspec.structs.replace(POD, **{field: value})
    assert change_of(POD, changed, CLAIMS) == change
    assert changes_entry(POD, changed) == change.entry
    if not change.entry:
        assert entries(changed) == entries(POD)
    if not change.marks:
        assert all_changes(changed) == all_changes(POD)


def test_every_field_of_a_pod_is_decided_on() -> None:
    identity = {"key", "uid"}
    decided = {field for field, _, _ in CHANGES}
    assert decided == {*Pod.__struct_fields__} - identity
