"""The status of a marker, with its conditions Synced, Conflict and Degraded, and its patch. Pure functions. Ready: `readiness`.

Each message says what is wrong, where, and what to do.

Source: Kruise pkg/controller/podprobemarker (status update).
Differs: everything but observedGeneration and matchedPods. A merge patch also writes zeros.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from kruise_probe.api.meta import Condition, NamespacedName
from kruise_probe.api.names import PAUSED_ANNOTATION, REASON_DAEMON_STALE, REASON_PAUSED
from kruise_probe.api.times import format_time
from kruise_probe.api.v1alpha1 import PodProbeMarker, PodProbeMarkerStatus, ProbeState
from kruise_probe.controllers.causes import CAUSES, CONTAINER_NOT_FOUND, NO_DAEMON
from kruise_probe.controllers.claims import ClaimConflict
from kruise_probe.controllers.counts import StatusCounts
from kruise_probe.controllers.foreign import ADMISSION, ForeignChange
from kruise_probe.controllers.limits import LIMITS, NO_ROOM
from kruise_probe.controllers.readiness import (
    CLAIMED_BY_ANOTHER,
    INVALID_SPEC,
    Lasting,
    previous_ready,
    ready,
)
from kruise_probe.controllers.roles import MAX_GROUP

SYNCED: Final = "Synced"
CONFLICT: Final = "Conflict"
DEGRADED: Final = "Degraded"

CHANGED_BY_ANOTHER: Final = "ChangedByAnother"
CHANGED_BY_ADMISSION: Final = "ChangedByAdmission"
VALUE_INVALID: Final = "ValueInvalid"
GROUP_TOO_LARGE: Final = "GroupTooLarge"
NO_GROUP: Final = "GroupMissing"
TWO_DAEMONS: Final = "TwoDaemons"
WRITES_LIMITED: Final = "WritesLimited"
MARKER_DELETING: Final = "MarkerDeleting"
MARKER_HELD: Final = "MarkerHeld"
WARNING_REASONS: Final = frozenset(
    {
        CLAIMED_BY_ANOTHER,
        CHANGED_BY_ANOTHER,
        CHANGED_BY_ADMISSION,
        INVALID_SPEC,
        *(limit.reason for limit in LIMITS),
    }
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


def conflict(
    conflicts: Iterable[ClaimConflict], foreign: Sequence[ForeignChange] = ()
) -> Condition:
    """The Conflict condition: claims of another probe before changes by other clients."""
    sentences = sorted({str(claim) for claim in conflicts})
    if sentences:
        message = f"Not written to pods: {listed(sentences)}. Use other names, or remove them from one of the probes."
        return Condition(CONFLICT, "True", CLAIMED_BY_ANOTHER, message)
    by_admission = [str(change) for change in foreign if change.by == ADMISSION]
    if by_admission:
        message = (
            f"An admission policy or webhook changes what the manager writes: {listed(by_admission)}. "
            "The manager tries again. Exempt the manager from that policy, or use other names."
        )
        return Condition(CONFLICT, "True", CHANGED_BY_ADMISSION, message)
    if foreign:
        changes = listed([str(change) for change in foreign])
        message = (
            f"Another client changed what probes of this marker write: {changes}. "
            "The manager writes its values again. Stop that client, or use other names."
        )
        return Condition(CONFLICT, "True", CHANGED_BY_ANOTHER, message)
    message = "No other probe owns a condition type, label or annotation of this marker."
    return Condition(CONFLICT, "False", "NoConflict", message)


class Facts(NamedTuple):
    """What the conditions are decided from.

    Attributes:
        refusals: by pod, why the API server refuses its marks.
        holders: by node, the processes that renew the Lease of its daemon in turns.
        windows: nodes that run Windows, where no daemon of ours can run.
        foreign: what others changed of the marks of this marker.
        large_groups: by role and group, the number of pods of groups that are too large.
        ungrouped: pods without the label that groups the pods of a role.
    """

    counts: StatusCounts
    refusals: Mapping[NamespacedName, str] = MappingProxyType({})
    holders: Mapping[str, Sequence[str]] = MappingProxyType({})
    windows: AbstractSet[str] = frozenset()
    foreign: Sequence[ForeignChange] = ()
    large_groups: Mapping[str, int] = MappingProxyType({})
    ungrouped: int = 0


def degraded(facts: Facts) -> Condition:
    """The Degraded condition for the first problem found."""
    for condition_of in _PROBLEMS:
        found = condition_of(facts)
        if found is not None:
            return found
    counts = facts.counts
    all_used = (
        counts.matched and not counts.nodes_behind and not counts.by_state[ProbeState.UNKNOWN]
    )
    message = "Every probe of this marker is in use." if all_used else "No problem is known."
    return Condition(DEGRADED, "False", "AsExpected", message)


def _degraded(reason: str, message: str) -> Condition:
    return Condition(DEGRADED, "True", reason, message)


def _invalid_spec(facts: Facts) -> Condition | None:
    if not facts.counts.compiled.errors:
        return None
    errors = listed([str(error) for error in facts.counts.compiled.errors])
    message = (
        f"The spec has invalid parts: {errors}. "
        "Correct them; until then, probes, labels and annotations that cannot be used are ignored."
    )
    return _degraded(INVALID_SPEC, message)


def _not_marked(facts: Facts) -> Condition | None:
    return not_marked(facts.refusals) if facts.refusals else None


def _left_out(facts: Facts) -> Condition | None:
    """The condition for the first limit that leaves out pods."""
    counts = facts.counts
    if not counts.left_out:
        return None
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


def _writes_limited(facts: Facts) -> Condition | None:
    counts = facts.counts
    if not counts.writes_limited:
        return None
    message = (
        f"Changes of {counts.writes_limited} of {counts.matched} pods are delayed, because their marks change too often "
        "without a new result: each pod is written once per 10 s. Another client may revert them, or markers select "
        "pods by labels that they write for each other. Stop that client, or remove such a label from a markerPolicy or selector."
    )
    return _degraded(WRITES_LIMITED, message)


def _no_daemon(facts: Facts) -> Condition | None:
    nodes = facts.counts.of_daemon(NO_DAEMON)
    if not nodes:
        return None
    message = (
        f"These nodes have never shown a sign of a daemon, so their pods have no results: {_pods_by_node(nodes)}. "
        "Check that the DaemonSet of kruise-probe has a pod on each node."
    )
    windows = sorted(nodes.keys() & facts.windows)
    if windows:
        message += f" Our daemon does not run on Windows, as on {listed(windows)}."
    return _degraded(NO_DAEMON, message)


def _stale(facts: Facts) -> Condition | None:
    nodes = facts.counts.of_daemon(REASON_DAEMON_STALE)
    if not nodes:
        return None
    message = (
        f"The daemons on these nodes do not renew their Lease: {_pods_by_node(nodes)}. Their results may be out of date. "
        "Check the kruise-probe-daemon pod on each node, and the node itself."
    )
    return _degraded(REASON_DAEMON_STALE, message)


def _two_daemons(facts: Facts) -> Condition | None:
    nodes = facts.counts.of_daemon(TWO_DAEMONS)
    if not nodes:
        return None
    texts = [f"{node} ({' and '.join(facts.holders.get(node, ()))})" for node in sorted(nodes)]
    message = (
        f"Two daemons renew the Lease of one node, so results of both alternate: {listed(texts)}. "
        "Give each machine its own node name, or stop one of the daemons; the log of each names its own."
    )
    return _degraded(TWO_DAEMONS, message)


def _no_verdict(facts: Facts) -> Condition | None:
    """The condition for the first cause of which a probe has no verdict on some pods."""
    counts = facts.counts
    for cause, why in CAUSES.items():
        probes = {probe: n for (reason, probe), n in counts.causes.items() if reason == cause}
        if not probes:
            continue
        if cause == CONTAINER_NOT_FOUND:
            return _container_not_found(counts, probes)
        texts = [f"probe {probe!r} on {n} of {counts.matched} pods" for probe, n in probes.items()]
        message = (
            f"No result of {listed(sorted(texts))}: {why}; kruise-probe status lists the pods."
        )
        return _degraded(cause, message)
    return None


def _container_not_found(counts: StatusCounts, probes: Mapping[str, int]) -> Condition:
    containers = {probe.probe: probe.container for probe in counts.compiled.probes}
    texts: list[str] = []
    for probe, count in sorted(probes.items()):
        what = f"container {containers[probe]!r} of probe {probe!r} is not a container or sidecar"
        texts.append(f"{what} of {count} of {counts.matched} pods")
    message = (
        f"Not probed: {listed(texts)}. "
        "Correct containerName in the marker; kruise-probe status lists the pods."
    )
    return _degraded(CONTAINER_NOT_FOUND, message)


def _value_invalid(facts: Facts) -> Condition | None:
    counts = facts.counts
    if not counts.invalid_values:
        return None
    keys: list[str] = []
    is_cut = False
    for value, count in sorted(counts.invalid_values.items()):
        is_cut = is_cut or bool(value.searched)
        pods = f"{count} pods, {value.searched}" if value.searched else f"{count} pods"
        keys.append(f"{value.kind} {value.key!r} of probe {value.probe!r} ({pods})")
    remedy = "Correct regex in the marker, or what the probe prints"
    if is_cut:
        remedy = "Print less, with the value at the beginning"
    message = (
        f"The messages of {counts.pods_with_invalid_values} of {counts.matched} pods have no valid value: "
        f"{listed(keys)}. These pods have the static value, or none. "
        f"{remedy}; kruise-probe explain shows the message."
    )
    return _degraded(VALUE_INVALID, message)


def _group_too_large(facts: Facts) -> Condition | None:
    if not facts.large_groups:
        return None
    groups = [f"{name}: {count} pods" for name, count in sorted(facts.large_groups.items())]
    message = (
        f"These groups have more than {MAX_GROUP} pods, so their roles do not move: {listed(groups)}. "
        "Divide the pods by groupByLabel, or select fewer of them."
    )
    return _degraded(GROUP_TOO_LARGE, message)


def _no_group(facts: Facts) -> Condition | None:
    if not facts.ungrouped:
        return None
    message = (
        f"{facts.ungrouped} of {facts.counts.matched} pods have no label that groupByLabel names, so they are one group "
        "together. Set the label on these pods, or remove groupByLabel."
    )
    return _degraded(NO_GROUP, message)


def _paused(facts: Facts) -> Condition | None:
    counts = facts.counts
    if not counts.compiled.paused and not counts.paused:
        return None
    what = "this PodProbeMarker has" if counts.compiled.paused else "they have"
    message = (
        f"{counts.paused} of {counts.matched} pods are not probed, because {what} the annotation "
        f"{PAUSED_ANNOTATION}=true. Conditions, labels and annotations stay as they are. Remove the annotation to resume."
    )
    return Condition(DEGRADED, "False", REASON_PAUSED, message)


def _fields_without_effect(facts: Facts) -> Condition | None:
    fields = facts.counts.compiled.fields_without_effect
    if not fields:
        return None
    message = f"These fields have no effect, because kruise-probe restarts no container: {listed(fields)}. Remove them."
    return Condition(DEGRADED, "False", "FieldsWithoutEffect", message)


_PROBLEMS: Final = (
    _invalid_spec,
    _not_marked,
    _left_out,
    _writes_limited,
    _no_daemon,
    _stale,
    _two_daemons,
    _no_verdict,
    _value_invalid,
    _group_too_large,
    _no_group,
    _paused,
    _fields_without_effect,
)
"""In the order in which a marker reports them: what needs action comes before what is transient."""


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
            return before.last_transition_time or format_time(now)
        return format_time(now)

    return tuple(
        msgspec.structs.replace(
            each, last_transition_time=since(each), observed_generation=generation
        )
        for each in conditions
    )


def marker_status(
    marker: PodProbeMarker,
    *,
    conflicts: Iterable[ClaimConflict] = (),
    node_errors: Mapping[str, str],
    facts: Facts,
    lasting: Lasting,
    now: datetime,
) -> PodProbeMarkerStatus:
    """The status that `marker` should have.

    `conflicts` are those that it lost. `node_errors` says by node why a write failed. observedGeneration is that of the
    counts, as `marker` may be newer.
    """
    counts = facts.counts
    by_state = counts.by_state
    generation = counts.compiled.generation
    claimed = [*conflicts]
    conditions = (
        synced(counts.nodes_behind.keys(), node_errors),
        conflict(claimed, facts.foreign),
        degraded(facts),
        ready(counts, bool(claimed), previous_ready(marker, generation), lasting),
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
    conditions = [replace(each, last_transition_time=None) for each in status.conditions]
    return replace(status, conditions=tuple(conditions))
