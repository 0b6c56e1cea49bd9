"""The counts and conditions of a marker's status."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from support.builders import (
    condition_wire,
    container_wire,
    marker,
    marker_wire,
    pod,
    probe_wire,
    state,
    states,
)

from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.meta import Condition
from kruise_probe.api.v1alpha1 import PodProbe, PodProbeMarkerStatus
from kruise_probe.controllers.compiled import compile_marker
from kruise_probe.controllers.markers.conditions import deletion_waits, not_marked
from kruise_probe.controllers.markers.counts import PodObservation, StatusCounts
from kruise_probe.controllers.markers.status import (
    deleted_status,
    differs,
    encode_status,
    marker_status,
    pruned_fields,
    waiting_status,
)
from kruise_probe.controllers.nodes.plan import plan
from kruise_probe.controllers.pods.claims import ClaimConflict
from kruise_probe.controllers.pods.marking import States

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
TWO = [probe_wire("a", condition="c/a"), probe_wire("b", condition="c/b")]


def entry(of: Any, *markers: Any) -> PodProbe:
    compiled = tuple(compile_marker(each) for each in markers)
    return plan([of], lambda _: compiled, (), deleting={})[0]


def counted(
    *observed: PodObservation,
    of: Any = None,
    conflicts: list[ClaimConflict] | None = None,
    node_errors: dict[str, str] | None = None,
) -> PodProbeMarkerStatus:
    of = of or marker(probes=TWO)
    counts = StatusCounts(compile_marker(of))
    for each in observed:
        counts.add(each)
    return marker_status(
        of,
        counts,
        conflicts=conflicts or [],
        node_errors=node_errors or {},
        refusals={},
        now=NOW,
    )


def condition(status: PodProbeMarkerStatus, type: str) -> Condition:
    return next(each for each in status.conditions or () if each.type == type)


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        pytest.param(["Succeeded", "Succeeded"], "succeeded", id="all-succeed"),
        pytest.param(["Succeeded", "Failed"], "failed", id="one-fails"),
        pytest.param(["Unknown", "Failed"], "failed", id="a-failure-outweighs-an-unknown"),
        pytest.param(["Succeeded", "Unknown"], "unknown", id="one-unknown"),
        pytest.param(["Succeeded"], "unknown", id="one-without-result"),
        pytest.param([], "unknown", id="no-results"),
    ],
)
def test_a_pod_counts_once(seen: list[str], expected: str) -> None:
    results = states(*(state(f"web#{name}", each) for name, each in zip("ab", seen, strict=False)))
    status = counted(PodObservation(pod(), entry(pod(), marker(probes=TWO)), results))
    assert status.matched_pods == 1
    assert {each: getattr(status, each) for each in ("succeeded", "failed", "unknown")} == {
        "succeeded": 0,
        "failed": 0,
        "unknown": 0,
    } | {expected: 1}


NONE: States = {}
ONCE = entry(pod(), marker(probes=TWO))
TWICE = msgspec.structs.replace(ONCE, probes=(*(ONCE.probes or ()), *(ONCE.probes or ())))


@pytest.mark.parametrize(
    ("observed", "behind"),
    [
        pytest.param(
            PodObservation(pod(), entry(pod(), marker(probes=TWO)), NONE), 0, id="current"
        ),
        pytest.param(PodObservation(pod(), None, NONE), 1, id="missing"),
        pytest.param(PodObservation(pod(), None, NONE, checks_entry=False), 0, id="virtual-node"),
        pytest.param(
            PodObservation(pod(ip="127.9.9.9"), entry(pod(), marker(probes=TWO)), NONE),
            1,
            id="former-ip",
        ),
        pytest.param(
            PodObservation(pod(), entry(pod(), marker(probes=TWO[:1])), NONE),
            1,
            id="a-probe-missing",
        ),
        pytest.param(
            PodObservation(pod(), entry(pod(), marker(probes=[*TWO, probe_wire("c")])), NONE),
            1,
            id="a-removed-probe",
        ),
        pytest.param(PodObservation(pod(), TWICE, NONE), 1, id="a-duplicate-probe"),
        pytest.param(
            PodObservation(pod(), entry(pod(), marker(probes=TWO), marker("way2")), NONE),
            0,
            id="beside-another-marker",
        ),
        pytest.param(
            PodObservation(pod(containers=[container_wire("x")]), None, NONE),
            0,
            id="nothing-to-probe",
        ),
    ],
)
def test_a_node_is_behind_unless_it_has_exactly_the_probes(
    observed: PodObservation, behind: int
) -> None:
    status = counted(observed)
    assert status.nodes_behind == behind
    assert condition(status, "Synced").status == ("False" if behind else "True")


def test_nodes_with_an_error_are_listed_first() -> None:
    observed = [PodObservation(pod(f"p{n}", node=f"node-{n}"), None, NONE) for n in range(9)]
    status = counted(*observed, node_errors={"node-7": "500: no"})
    message = condition(status, "Synced").message
    assert message == (
        "9 NodePodProbes do not have the current probes of this marker yet: node-7: 500: no; node-0; node-1; "
        "and 6 more. The manager retries. If this lasts, check its log."
    )


@pytest.mark.parametrize(
    ("nodes", "start"),
    [
        pytest.param(1, "1 NodePodProbe does not have", id="one"),
        pytest.param(2, "2 NodePodProbes do not have", id="two"),
        pytest.param(3, "3 NodePodProbes do not have", id="as-many-as-are-listed"),
    ],
)
def test_a_few_nodes_are_all_listed(nodes: int, start: str) -> None:
    observed = [PodObservation(pod(f"p{n}", node=f"node-{n}"), None, NONE) for n in range(nodes)]
    assert condition(counted(*observed), "Synced").message == (
        f"{start} the current probes of this marker yet: {'; '.join(f'node-{n}' for n in range(nodes))}. "
        "The manager retries. If this lasts, check its log."
    )


@pytest.mark.parametrize(
    ("pods", "what"),
    [(1, "1 pod: default/p0: no."), (2, "2 pods: default/p0: no; default/p1: no.")],
)
def test_the_pods_that_are_not_marked_are_counted(pods: int, what: str) -> None:
    message = not_marked({NamespacedName("default", f"p{n}"): "no" for n in range(pods)}).message
    assert message == (
        f"The API server refuses to write results to {what} "
        "Correct the marker, or the admission policy that refuses them."
    )


@pytest.mark.parametrize("refusals", [{}, {NamespacedName("default", "p0"): "no"}])
def test_a_deletion_that_waits_reports_refusals_only_if_there_are_any(
    refusals: dict[NamespacedName, str],
) -> None:
    status = waiting_status(marker(), 1, nodes=["a"], pod=None, refusals=refusals, now=NOW)
    types = [each.type for each in status.conditions or ()]
    assert types == ["Synced", *(["Degraded"] if refusals else [])]


@pytest.mark.parametrize(
    ("nodes", "hold"), [(["a"], "1 NodePodProbe still holds"), (["a", "b"], "2 NodePodProbes still hold")]
)  # fmt: skip
def test_the_nodes_that_a_deletion_waits_for_are_counted(nodes: list[str], hold: str) -> None:
    message = deletion_waits(nodes, None).message
    assert message is not None
    assert message.startswith(f"{hold} probes of this marker: {'; '.join(nodes)}. ")


def test_a_deleted_marker_of_which_nothing_is_left_counts_no_pods() -> None:
    status = deleted_status(marker(status={"matchedPods": 3, "succeeded": 3}), 2, NOW)
    counts = (status.matched_pods, status.succeeded, status.failed, status.unknown)
    assert (status.observed_generation, *counts, status.nodes_behind) == (2, 0, 0, 0, 0, 0)


def test_the_conflict_message_names_both_probes() -> None:
    lost = ClaimConflict(
        NamespacedName("default", "web"), "a", "label", "l", NamespacedName("default", "old"), "p"
    )
    status = counted(conflicts=[lost, lost])
    assert condition(status, "Conflict").status == "True"
    assert condition(status, "Conflict").message == (
        "Not written to pods: label 'l' of probe 'a' belongs to probe 'p' of PodProbeMarker default/old. "
        "Use other names, or remove them from one of the probes."
    )


def test_b13_fields_without_effect_are_reported_and_degrade_nothing() -> None:
    restarting = probe_wire("b", condition="c/b", terminationGracePeriodSeconds=5)
    of = marker(probes=[probe_wire("a", condition="c/a"), restarting])
    degraded = condition(counted(of=of), "Degraded")

    assert (degraded.status, degraded.reason) == ("False", "FieldsWithoutEffect")
    assert degraded.message is not None
    assert "spec.probes[1].probe.terminationGracePeriodSeconds. Remove them." in degraded.message


def test_the_transition_time_changes_only_with_the_status() -> None:
    before = [condition_wire("Synced", lastTransitionTime="2025-01-01T00:00:00Z")]
    before += [condition_wire("Conflict", lastTransitionTime="2025-01-01T00:00:00Z")]
    of = marker(probes=TWO, status={"observedGeneration": 1, "conditions": before})
    status = counted(of=of)
    assert condition(status, "Synced").last_transition_time == "2025-01-01T00:00:00Z"
    assert condition(status, "Conflict").last_transition_time == "2026-01-01T12:00:00Z"


def test_observed_generation_is_that_of_the_counts() -> None:
    newer = marker(probes=TWO, generation=9)
    decided = compile_marker(marker(probes=TWO, generation=8))
    status = marker_status(newer, StatusCounts(decided), node_errors={}, refusals={}, now=NOW)
    assert status.observed_generation == 8


class TestDifference:
    STATUS = counted(PodObservation(pod(), None, NONE))

    def test_a_stored_status_does_not_differ(self) -> None:
        stored = msgspec.json.decode(encode_status(self.STATUS))["status"]
        read = marker(status=stored).status
        assert not differs(self.STATUS, read, frozenset())

    def test_zeros_are_written(self) -> None:
        body = msgspec.json.decode(encode_status(counted()))["status"]
        assert (body["matchedPods"], body["succeeded"]) == (0, 0)

    def test_a_missing_status_differs(self) -> None:
        assert differs(self.STATUS, None, frozenset())

    def test_times_and_the_order_of_conditions_do_not_differ(self) -> None:
        conditions = [
            msgspec.structs.replace(each, last_transition_time="2025-01-01T00:00:00Z")
            for each in reversed(self.STATUS.conditions or ())
        ]
        assert len(conditions) > 1
        read = msgspec.structs.replace(self.STATUS, conditions=conditions)
        assert not differs(self.STATUS, read, frozenset())

    def test_fields_that_the_server_prunes_are_not_compared(self) -> None:
        kept = PodProbeMarkerStatus(observed_generation=1, matched_pods=1)
        pruned = pruned_fields(self.STATUS, kept)
        assert pruned == {"succeeded", "failed", "unknown", "nodes_behind", "conditions"}
        assert not differs(self.STATUS, kept, pruned)
        assert differs(self.STATUS, PodProbeMarkerStatus(observed_generation=1), pruned)

    def test_a_server_that_keeps_all_fields_prunes_nothing(self) -> None:
        assert pruned_fields(self.STATUS, self.STATUS) == frozenset()


def test_a_marker_without_creation_time_has_a_status() -> None:
    wire = marker_wire(created="")
    assert counted(of=marker(created="")).observed_generation == wire["metadata"]["generation"]
