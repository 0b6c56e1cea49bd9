"""The conditions Synced, Conflict and Degraded of a marker. Pure functions. Ready: `readiness`.

Each message says what is wrong, where, and what to do.

Source: no counterpart.
Differs: nothing.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Final, NamedTuple

from kruise_probe.api.meta import Condition, NamespacedName
from kruise_probe.api.names import PAUSED_ANNOTATION, REASON_DAEMON_STALE, REASON_PAUSED
from kruise_probe.api.v1alpha1 import ProbeState
from kruise_probe.controllers.causes import CAUSES, CONTAINER_NOT_FOUND, NO_DAEMON
from kruise_probe.controllers.claims import ClaimConflict
from kruise_probe.controllers.compiled import CompiledMarker
from kruise_probe.controllers.counts import (
    NODES_BEHIND,
    TWO_DAEMONS,
    InState,
    InvalidValue,
    PodFlag,
    Refusal,
)
from kruise_probe.controllers.foreign import ADMISSION, ForeignChange
from kruise_probe.controllers.limits import LIMITS, NO_ROOM, LeftOut
from kruise_probe.controllers.readiness import CLAIMED_BY_ANOTHER, INVALID_SPEC
from kruise_probe.controllers.roles import MAX_GROUP
from kruise_probe.controllers.tallies import StatusCounts

SYNCED: Final = "Synced"
CONFLICT: Final = "Conflict"
DEGRADED: Final = "Degraded"

CHANGED_BY_ANOTHER: Final = "ChangedByAnother"
CHANGED_BY_ADMISSION: Final = "ChangedByAdmission"
MARKER_DELETING: Final = "MarkerDeleting"
MARKER_HELD: Final = "MarkerHeld"
NOT_MARKED: Final = "PodNotMarked"
WRITES_LIMITED: Final = "WritesLimited"
GROUP_TOO_LARGE: Final = "GroupTooLarge"
GROUP_MISSING: Final = "GroupMissing"
VALUE_INVALID: Final = "ValueInvalid"
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


class Facts(NamedTuple):
    """What the conditions are decided from.

    Attributes:
        conflicts: those that the marker lost.
        node_errors: by node, why the write of its NodePodProbe failed.
        holders: by node, the processes that renew the Lease of its daemon in turns.
        windows: nodes that run Windows, where no daemon of ours can run.
        foreign: what others changed of the marks of this marker.
        large_groups: by role and group, the number of pods of groups that are too large.
        ungrouped: pods without the label that groups the pods of a role.
    """

    marker: CompiledMarker
    counts: StatusCounts
    conflicts: AbstractSet[ClaimConflict]
    node_errors: Mapping[str, str]
    holders: Mapping[str, Sequence[str]]
    windows: AbstractSet[str]
    foreign: Sequence[ForeignChange]
    large_groups: Mapping[str, int]
    ungrouped: int


def synced(facts: Facts) -> Condition:
    """The Synced condition; nodes with an error are listed first."""
    behind = sorted(facts.counts.on_nodes(NODES_BEHIND))
    if not behind:
        message = "Every node has the current probes of this marker."
        return Condition(SYNCED, "True", "NodesCurrent", message)
    with_error = []
    others = []
    for node in behind:
        error = facts.node_errors.get(node)
        if error is None:
            others.append(node)
        else:
            with_error.append(f"{node}: {error}")
    do_not = "NodePodProbe does not"
    if len(behind) > 1:
        do_not = "NodePodProbes do not"
    nodes = listed(with_error + others)
    message = (
        f"{len(behind)} {do_not} have the current probes of this marker yet: {nodes}. "
        "The manager retries. If this lasts, check its log."
    )
    return Condition(SYNCED, "False", NODES_BEHIND, message)


def conflict(
    conflicts: Iterable[ClaimConflict],
    foreign: Sequence[ForeignChange] = (),
    inherited: Condition | None = None,
) -> Condition:
    """The Conflict condition: claims of another probe, else changes by other clients, else the inherited condition."""
    sentences = {str(claim) for claim in conflicts}
    if sentences:
        lost = listed(sorted(sentences))
        message = (
            f"Not written to pods: {lost}. Use other names, or remove them from one of the probes."
        )
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
    if inherited is not None:
        return inherited
    message = "No other probe owns a condition type, label or annotation of this marker."
    return Condition(CONFLICT, "False", "NoConflict", message)


def degraded(facts: Facts, inherited: Condition | None = None) -> Condition:
    """The Degraded condition for the first problem that is found or inherited."""
    for reason, text_of in _PROBLEMS:
        message = text_of(facts)
        if message:
            return Condition(DEGRADED, "True", reason, message)
        if inherited is not None and inherited.reason == reason:
            return inherited
    for reason, text_of in _NOTES:
        message = text_of(facts)
        if message:
            return Condition(DEGRADED, "False", reason, message)
    message = "No problem is known."
    counts = facts.counts
    is_behind = counts.on_nodes(NODES_BEHIND)
    unknown = counts[InState(ProbeState.UNKNOWN)]
    if counts.matched and not is_behind and not unknown:
        message = "Every probe of this marker is in use."
    return Condition(DEGRADED, "False", "AsExpected", message)


def _invalid_spec(facts: Facts) -> str:
    if not facts.marker.errors:
        return ""
    texts = [str(error) for error in facts.marker.errors]
    errors = listed(texts)
    return (
        f"The spec has invalid parts: {errors}. "
        "Correct them; until then, probes, labels and annotations that cannot be used are ignored."
    )


def _not_marked(facts: Facts) -> str:
    refusals = facts.counts.of(Refusal)
    return not_marked({refusal.pod: refusal.why for refusal in refusals})


def _left_out(limit: LeftOut, facts: Facts) -> str:
    """Empty if this limit leaves out no pod."""
    nodes = facts.counts.on_nodes(limit.reason)
    if not nodes:
        return ""
    left_out = sum(nodes.values())
    matched = facts.counts.matched
    message = f"{left_out} of {matched} pods are not probed: {limit.remedied}"
    if limit is NO_ROOM:
        message += f" Nodes: {_pods_by_node(nodes)}."
    return message


def _writes_limited(facts: Facts) -> str:
    limited = facts.counts[PodFlag.WRITES_LIMITED]
    if not limited:
        return ""
    matched = facts.counts.matched
    return (
        f"Changes of {limited} of {matched} pods are delayed, because their marks change too often "
        "without a new result: each pod is written once per 10 s. Another client may revert them, or markers select "
        "pods by labels that they write for each other. Stop that client, or remove such a label from a markerPolicy or selector."
    )


def _no_daemon(facts: Facts) -> str:
    nodes = facts.counts.on_nodes(NO_DAEMON)
    if not nodes:
        return ""
    message = (
        f"These nodes have never shown a sign of a daemon, so their pods have no results: {_pods_by_node(nodes)}. "
        "Check that the DaemonSet of kruise-probe has a pod on each node."
    )
    windows = sorted(nodes.keys() & facts.windows)
    if windows:
        message += f" Our daemon does not run on Windows, as on {listed(windows)}."
    return message


def _stale(facts: Facts) -> str:
    nodes = facts.counts.on_nodes(REASON_DAEMON_STALE)
    if not nodes:
        return ""
    return (
        f"The daemons on these nodes do not renew their Lease: {_pods_by_node(nodes)}. Their results may be out of date. "
        "Check these nodes, and read the logs of their kruise-probe-daemon pods."
    )


def _two_daemons(facts: Facts) -> str:
    nodes = sorted(facts.counts.on_nodes(TWO_DAEMONS))
    if not nodes:
        return ""
    texts = []
    for node in nodes:
        holders = " and ".join(facts.holders.get(node, ()))
        texts.append(f"{node} ({holders})")
    return (
        f"Two daemons renew the Lease of one node, so results of both alternate: {listed(texts)}. "
        "Give each machine its own node name, or stop one of the daemons; the log of each names its own."
    )


def _no_verdict(cause: str, facts: Facts) -> str:
    """Empty if this cause keeps a verdict from no probe."""
    probes = facts.counts.of_probes(facts.marker, cause)
    if not probes:
        return ""
    matched = facts.counts.matched
    if cause == CONTAINER_NOT_FOUND:
        return _container_not_found(facts.marker, probes, matched)
    texts = []
    for probe, pods in sorted(probes.items()):
        texts.append(f"probe {probe!r} on {pods} of {matched} pods")
    what = listed(texts)
    return f"No result of {what}: {CAUSES[cause]}; kruise-probe status lists the pods."


def _container_not_found(
    marker: CompiledMarker,
    probes: Mapping[str, int],
    matched: int,
) -> str:
    containers = {probe.probe: probe.container for probe in marker.probes}
    texts = []
    for probe, pods in sorted(probes.items()):
        container = containers[probe]
        what = f"container {container!r} of probe {probe!r} is not a container or sidecar"
        texts.append(f"{what} of {pods} of {matched} pods")
    remedy = "Correct containerName in the marker; kruise-probe status lists the pods."
    return f"Not probed: {listed(texts)}. {remedy}"


def _value_invalid(facts: Facts) -> str:
    counts = facts.counts
    keys = []
    remedy = "Correct regex in the marker, or what the probe prints"
    values = counts.of(InvalidValue)
    for value, pods in sorted(values.items()):
        where = f"{pods} pods"
        if value.searched:
            where += f", {value.searched}"
            remedy = "Print less, with the value at the beginning"
        key = f"{value.kind} {value.key!r} of probe {value.probe!r}"
        keys.append(f"{key} ({where})")
    if not keys:
        return ""
    affected = f"{counts[PodFlag.INVALID]} of {counts.matched} pods"
    return (
        f"The messages of {affected} have no valid value: {listed(keys)}. "
        "These pods have the static value, or none. "
        f"{remedy}; kruise-probe explain shows the message."
    )


def _group_too_large(facts: Facts) -> str:
    if not facts.large_groups:
        return ""
    groups = []
    for name, pods in sorted(facts.large_groups.items()):
        groups.append(f"{name}: {pods} pods")
    return (
        f"These groups have more than {MAX_GROUP} pods, so their roles do not move: {listed(groups)}. "
        "Divide the pods by groupByLabel, or select fewer of them."
    )


def _no_group(facts: Facts) -> str:
    if not facts.ungrouped:
        return ""
    return (
        f"{facts.ungrouped} of {facts.counts.matched} pods have no label that groupByLabel names, so they are one group "
        "together. Set the label on these pods, or remove groupByLabel."
    )


def _paused(facts: Facts) -> str:
    paused = facts.counts[PodFlag.PAUSED]
    matched = facts.counts.matched
    if facts.marker.paused:
        what = "this PodProbeMarker has"
    elif paused:
        what = "they have"
    else:
        return ""
    return (
        f"{paused} of {matched} pods are not probed, because {what} the annotation "
        f"{PAUSED_ANNOTATION}=true. Conditions, labels and annotations stay as they are. Remove the annotation to resume."
    )


def _fields_without_effect(facts: Facts) -> str:
    fields = facts.marker.fields_without_effect
    if not fields:
        return ""
    names = listed(fields)
    return f"These fields have no effect, because kruise-probe restarts no container: {names}. Remove them."


_Rows = tuple[tuple[str, Callable[[Facts], str]], ...]
"""Each reason, and the function that returns its message; it is empty without the problem."""

_PROBLEMS: Final[_Rows] = (
    (INVALID_SPEC, _invalid_spec),
    (NOT_MARKED, _not_marked),
    *[(limit.reason, partial(_left_out, limit)) for limit in LIMITS],
    (WRITES_LIMITED, _writes_limited),
    (NO_DAEMON, _no_daemon),
    (REASON_DAEMON_STALE, _stale),
    (TWO_DAEMONS, _two_daemons),
    *[(cause, partial(_no_verdict, cause)) for cause in CAUSES],
    (VALUE_INVALID, _value_invalid),
    (GROUP_TOO_LARGE, _group_too_large),
    (GROUP_MISSING, _no_group),
)
"""In the order in which a marker reports them: what needs action comes before what is transient."""

_NOTES: Final[_Rows] = (
    (REASON_PAUSED, _paused),
    ("FieldsWithoutEffect", _fields_without_effect),
)
"""What degrades nothing, and is reported if there is no problem."""


def not_marked(refusals: Mapping[NamespacedName, str]) -> str:
    """Which pods have marks that the API server refuses, and why; empty if there are none."""
    if not refusals:
        return ""
    pods = "1 pod"
    if len(refusals) > 1:
        pods = f"{len(refusals)} pods"
    reasons = []
    for pod, why in sorted(refusals.items()):
        reasons.append(f"{pod}: {why}")
    return (
        f"The API server refuses to write results to {pods}: {listed(reasons)}. "
        "Correct the marker, or the admission policy that refuses them."
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
    what = f"These NodePodProbes still hold probes of this marker: {listed(nodes)}."
    if pod is not None:
        what = f"Pod {pod} still has conditions, labels or annotations of this marker."
    message = f"{what} The manager removes them. If this lasts, check its log."
    return Condition(SYNCED, "False", MARKER_DELETING, message)


def _pods_by_node(counts: Mapping[str, int]) -> str:
    nodes = []
    for node, pods in sorted(counts.items()):
        nodes.append(f"{node} ({pods} pods)")
    return listed(nodes)


def listed(items: Sequence[str]) -> str:
    """Join the first items, and count the rest."""
    text = "; ".join(items[:LISTED])
    more = len(items) - LISTED
    if more > 0:
        text += f"; and {more} more"
    return text
