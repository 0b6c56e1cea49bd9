"""The status of a marker, with its conditions Synced, Conflict and Degraded, and its patch. Pure functions.

Each message says what is wrong, where, and what to do.

Source: Kruise pkg/controller/podprobemarker (status update).
Differs: everything but observedGeneration and matchedPods. A merge patch also writes zeros.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Final

import msgspec

from kruise_probe.api.meta import Condition, NamespacedName
from kruise_probe.api.names import PAUSED_ANNOTATION, REASON_DAEMON_STALE, REASON_PAUSED
from kruise_probe.api.times import format_time
from kruise_probe.api.v1alpha1 import PodProbeMarker, PodProbeMarkerStatus, ProbeState
from kruise_probe.controllers.claims import ClaimConflict
from kruise_probe.controllers.counts import StatusCounts
from kruise_probe.controllers.limits import LIMITS, NO_ROOM

SYNCED: Final = "Synced"
CONFLICT: Final = "Conflict"
DEGRADED: Final = "Degraded"

CLAIMED_BY_ANOTHER: Final = "ClaimedByAnother"
INVALID_SPEC: Final = "InvalidSpec"
VALUE_INVALID: Final = "ValueInvalid"
WRITES_LIMITED: Final = "WritesLimited"
MARKER_DELETING: Final = "MarkerDeleting"
MARKER_HELD: Final = "MarkerHeld"
WARNING_REASONS: Final = frozenset(
    {CLAIMED_BY_ANOTHER, INVALID_SPEC, *(limit.reason for limit in LIMITS)}
)
"""Reasons with a Warning event: where Kruise's CRD prunes conditions, only the event reports them."""

LISTED: Final = 3
"""How many nodes, conflicts or errors a message lists; it counts the rest."""


def synced(nodes_behind: AbstractSet[str], node_errors: Mapping[str, str]) -> Condition:
    """The Synced condition; nodes with an error are listed first."""
    if not nodes_behind:
        message = "Every node has the current probes of this marker."
        return Condition(SYNCED, "True", "NodesCurrent", message)
    nodes = [
        f"{node}: {node_errors[node]}" if node in node_errors else node
        for node in sorted(nodes_behind, key=lambda node: (node not in node_errors, node))
    ]
    do_not = "NodePodProbes do not" if len(nodes) > 1 else "NodePodProbe does not"
    return Condition(
        SYNCED,
        "False",
        "NodesBehind",
        f"{len(nodes)} {do_not} have the current probes of this marker yet: {listed(nodes)}. "
        "The manager retries. If this lasts, check its log.",
    )


def conflict(conflicts: Iterable[ClaimConflict]) -> Condition:
    """The Conflict condition."""
    sentences = sorted({str(each) for each in conflicts})
    if not sentences:
        message = "No other probe owns a condition type, label or annotation of this marker."
        return Condition(CONFLICT, "False", "NoConflict", message)
    message = f"Not written to pods: {listed(sentences)}. Use other names, or remove them from one of the probes."
    return Condition(CONFLICT, "True", CLAIMED_BY_ANOTHER, message)


def degraded(counts: StatusCounts, refusals: Mapping[NamespacedName, str]) -> Condition:
    """The Degraded condition for the first problem found: those that need action come before transient ones."""
    compiled = counts.compiled
    if compiled.errors:
        errors = listed([str(each) for each in compiled.errors])
        message = (
            f"The spec has invalid parts: {errors}. "
            "Correct them; until then, probes, labels and annotations that cannot be used are ignored."
        )
        return _degraded(INVALID_SPEC, message)
    if refusals:
        return not_marked(refusals)
    if counts.left_out:
        return _left_out(counts)
    if counts.writes_limited:
        message = (
            f"Changes of {counts.writes_limited} of {counts.matched} pods are delayed, because their marks change too often "
            "without a new result: each pod is written once per 10 s. Another client may revert them, or markers select "
            "pods by labels that they write for each other. Stop that client, or remove such a label from a markerPolicy or selector."
        )
        return _degraded(WRITES_LIMITED, message)
    if counts.stale:
        message = (
            f"Results are unknown, because the daemons on these nodes do not renew their Lease: {_pods_by_node(counts.stale)}. "
            "Check the kruise-probe-daemon pod on each node, and the node itself."
        )
        return _degraded(REASON_DAEMON_STALE, message)
    if counts.containers_missing:
        sentences = [
            f"container {container!r} of probe {probe!r} is not a container or sidecar of {count} of {counts.matched} pods"
            for (probe, container), count in sorted(counts.containers_missing.items())
        ]
        message = (
            f"Not probed: {listed(sentences)}. "
            "Correct containerName in the marker; kruise-probe status lists the pods."
        )
        return _degraded("ContainerNotFound", message)
    if counts.invalid_values:
        keys = [
            f"{each.kind} {each.key!r} of probe {each.probe!r} ({', '.join(filter(None, (f'{count} pods', each.searched)))})"
            for each, count in sorted(counts.invalid_values.items())
        ]
        cut = any(each.searched for each in counts.invalid_values)
        remedy = (
            "Print less, with the value at the beginning"
            if cut
            else "Correct regex in the marker, or what the probe prints"
        )
        message = (
            f"The messages of {counts.pods_with_invalid_values} of {counts.matched} pods have no valid value: "
            f"{listed(keys)}. These pods have the static value, or none. "
            f"{remedy}; kruise-probe explain shows the message."
        )
        return _degraded(VALUE_INVALID, message)
    if compiled.paused or counts.paused:
        return _paused(counts)
    message = "Every probe of this marker is in use."
    if compiled.fields_without_effect:
        fields = listed(compiled.fields_without_effect)
        message += f" These fields have no effect, because kruise-probe restarts no container: {fields}. Remove them."
        return Condition(DEGRADED, "False", "FieldsWithoutEffect", message)
    return Condition(DEGRADED, "False", "AsExpected", message)


def _degraded(reason: str, message: str) -> Condition:
    return Condition(DEGRADED, "True", reason, message)


def _left_out(counts: StatusCounts) -> Condition:
    """The Degraded condition for the first limit that leaves out pods."""
    by_reason: Counter[str] = Counter()
    for (reason, _), count in counts.left_out.items():
        by_reason[reason] += count
    limit = next(limit for limit in LIMITS if by_reason[limit.reason])
    pods = f"{by_reason[limit.reason]} of {counts.matched} pods"
    message = f"{pods} are not probed: {limit.remedied}"
    if limit is NO_ROOM:
        nodes = {node: n for (reason, node), n in counts.left_out.items() if reason == limit.reason}
        message += f" Nodes: {_pods_by_node(nodes)}."
    return _degraded(limit.reason, message)


def _paused(counts: StatusCounts) -> Condition:
    what = "this PodProbeMarker has" if counts.compiled.paused else "they have"
    message = (
        f"{counts.paused} of {counts.matched} pods are not probed, because {what} the annotation "
        f"{PAUSED_ANNOTATION}=true. Conditions, labels and annotations stay as they are. Remove the annotation to resume."
    )
    return Condition(DEGRADED, "False", REASON_PAUSED, message)


def not_marked(refusals: Mapping[NamespacedName, str]) -> Condition:
    """The Degraded condition for pods whose marks the API server refuses."""
    sentences = [f"{pod}: {why}" for pod, why in sorted(refusals.items())]
    pods = f"{len(refusals)} pods" if len(refusals) > 1 else "1 pod"
    return _degraded(
        "PodNotMarked",
        f"The API server refuses to write results to {pods}: {listed(sentences)}. "
        "Correct the marker, or the admission policy that refuses them.",
    )


def deleting(nodes: Sequence[str], pod: NamespacedName | None) -> Condition:
    """The Synced condition of a deleted marker of which `nodes` still hold entries, or `pod` still has marks.

    Without both, only finalizers of others keep the marker.
    """
    if pod is None and not nodes:
        message = (
            "The manager has removed all probes and marks of this marker. Finalizers of other controllers block its "
            "deletion; check metadata.finalizers."
        )
        return Condition(SYNCED, "True", MARKER_HELD, message)
    if pod is not None:
        what = f"Pod {pod} still has conditions, labels or annotations of this marker."
    else:
        what = f"These NodePodProbes still hold probes of this marker: {listed(nodes)}."
    message = f"{what} The manager removes them. If this lasts, check its log."
    return Condition(SYNCED, "False", MARKER_DELETING, message)


def _pods_by_node(counts: Mapping[str, int]) -> str:
    return listed([f"{node} ({count} pods)" for node, count in sorted(counts.items())])


def listed(items: Sequence[str]) -> str:
    """Join the first items, and count the rest."""
    shown = "; ".join(items[:LISTED])
    return f"{shown}; and {len(items) - LISTED} more" if len(items) > LISTED else shown


def stamped(
    conditions: Iterable[Condition], marker: PodProbeMarker, generation: int, now: datetime
) -> tuple[Condition, ...]:
    """Set lastTransitionTime, which changes only with the status, and observedGeneration."""
    previous = {each.type: each for each in (marker.status and marker.status.conditions) or ()}

    def since(condition: Condition) -> str | None:
        before = previous.get(condition.type)
        if before is not None and before.status == condition.status:
            return before.last_transition_time
        return format_time(now)

    return tuple(
        msgspec.structs.replace(
            each, last_transition_time=since(each), observed_generation=generation
        )
        for each in conditions
    )


def marker_status(
    marker: PodProbeMarker,
    counts: StatusCounts,
    *,
    conflicts: Iterable[ClaimConflict] = (),
    node_errors: Mapping[str, str],
    refusals: Mapping[NamespacedName, str],
    now: datetime,
) -> PodProbeMarkerStatus:
    """The status that `marker` should have.

    `conflicts` are those that it lost. `node_errors` says by node
    why a write failed, `refusals` by pod why the API server refuses its marks. observedGeneration is that of the
    counts, as `marker` may be newer.
    """
    by_state, generation = counts.by_state, counts.compiled.generation
    conditions = (
        synced(counts.nodes_behind, node_errors),
        conflict(conflicts),
        degraded(counts, refusals),
    )
    return PodProbeMarkerStatus(
        observed_generation=generation,
        matched_pods=counts.matched,
        succeeded=by_state[ProbeState.SUCCEEDED],
        failed=by_state[ProbeState.FAILED],
        unknown=by_state[ProbeState.UNKNOWN],
        nodes_behind=len(counts.nodes_behind),
        conditions=stamped(conditions, marker, generation, now),
    )


def deleted_status(
    marker: PodProbeMarker,
    generation: int,
    *,
    nodes: Sequence[str],
    pod: NamespacedName | None,
    refusals: Mapping[NamespacedName, str],
    now: datetime,
) -> PodProbeMarkerStatus:
    """The status of a deleted marker of which `nodes` still hold entries, or `pod` still has marks."""
    conditions = [deleting(nodes, pod)]
    if refusals:
        conditions.append(not_marked(refusals))
    return PodProbeMarkerStatus(
        observed_generation=generation,
        succeeded=0,
        failed=0,
        unknown=0,
        nodes_behind=len(nodes),
        conditions=stamped(conditions, marker, generation, now),
    )


def encode_status(status: PodProbeMarkerStatus) -> bytes:
    """Encode a merge patch of the whole status, also of zeros."""
    names = PodProbeMarkerStatus.__struct_encode_fields__
    values = msgspec.structs.astuple(status)
    return msgspec.json.encode({"status": dict(zip(names, values, strict=True))})


def differs(wanted: PodProbeMarkerStatus, current: PodProbeMarkerStatus | None) -> bool:
    """Whether a write would change anything but times, which never change alone."""
    return current is None or _without_times(wanted) != _without_times(current)


def _without_times(status: PodProbeMarkerStatus) -> PodProbeMarkerStatus:
    replace = msgspec.structs.replace
    conditions = [replace(each, last_transition_time=None) for each in status.conditions or ()]
    return replace(status, conditions=tuple(conditions))
