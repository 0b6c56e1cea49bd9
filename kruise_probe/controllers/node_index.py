"""Index of NodePodProbes by pod and by marker, and which results an event changed.

The status change of a pod is a new state, a first result, or only a new message. A probe that leaves the spec and is
added again starts over: its next result is a first result. This holds even if the status never showed the probe
without a result, as the daemon batches changes of 100 ms. So markers in a selector cycle never get the unlimited
writes of state changes.

The daemon removes the state of a removed probe within 2 s. Until then it does not count, unless the probe returns with
the same handler. So a marker that is deleted and created again does not show the result of its old command.

Source: no counterpart.
"""

from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from enum import IntEnum
from typing import Final, NamedTuple

from kruise_probe.api.handlers import probe_hash
from kruise_probe.api.keys import NamespacedName, ProbeName
from kruise_probe.api.pods import Pod
from kruise_probe.api.v1alpha1 import (
    ContainerProbeState,
    NodePodProbe,
    PodProbe,
    PodProbeStatus,
)
from kruise_probe.controllers.pods.marking import States

ProbeOfPod = tuple[str, str]
"""The pod's uid and the probe's name, `<marker>#<probe>`."""

PodIdentity = tuple[str, str, str]
"""Namespace, name and uid. A result belongs to a pod if all three are equal, as in Kruise."""

Statuses = Mapping[PodIdentity, PodProbeStatus]


class NodeView(NamedTuple):
    """A NodePodProbe indexed by pod: its entries (by uid) and the published results.

    `removed` holds probes that left the spec, also those that returned, until they have another result.
    """

    entries: Mapping[str, PodProbe]
    statuses: Statuses
    removed: frozenset[ProbeOfPod] = frozenset()

    def is_outdated(self, uid: str, state: ContainerProbeState) -> bool:
        """Whether the state is of a probe that was removed, and not of the one that now has its name.

        With Kruise's daemon or CRD, states have no hash. They count again when a probe of this name returns.
        """
        if (uid, state.name) not in self.removed:
            return False
        entry = self.entries.get(uid)
        for each in (entry and entry.probes) or ():
            if each.name == state.name:
                return bool(state.probe_hash) and probe_hash(each.probe) != state.probe_hash
        return True


_EMPTY_VIEW: Final = NodeView({}, {})


class PodResultChange(IntEnum):
    """The most important change in the results of one pod.

    MESSAGE: only messages changed, or a result was removed. FIRST_RESULT: a probe has its first result, or its last
    one counts again. STATE: a probe that stayed in the spec changed its state.
    """

    MESSAGE = 0
    FIRST_RESULT = 1
    STATE = 2


class ProbesChange(NamedTuple):
    """What an event of a NodePodProbe changed.

    Attributes:
        spec: whether the entries changed.
        pods: the pods of which a state or message changed, with the kind of change. A newer time alone is no change,
            except after the removal of a probe.
        markers: the markers of all changed entries and results.
    """

    spec: bool
    pods: Mapping[NamespacedName, PodResultChange]
    markers: frozenset[NamespacedName]


class NodePodProbeIndex:
    """The entries and results of all NodePodProbes. `update` and `remove` keep it up to date."""

    def __init__(self) -> None:
        self._views: dict[str, NodeView] = {}
        self._nodes_of_marker: dict[NamespacedName, set[str]] = {}

    def view(self, node: str) -> NodeView:
        """The indexed NodePodProbe of `node`; empty if there is none."""
        return self._views.get(node, _EMPTY_VIEW)

    def states_of(self, pod: Pod) -> States:
        """The probe states that the node of `pod` published for it, without outdated ones."""
        view = self.view(pod.node)
        status = view.statuses.get((pod.namespace, pod.name, pod.uid))
        return {
            each.name: each
            for each in (status and status.probe_states) or ()
            if not (view.removed and view.is_outdated(pod.uid, each))
        }

    def nodes_holding(self, marker: NamespacedName) -> Collection[str]:
        """The nodes whose NodePodProbe holds an entry of `marker`."""
        return self._nodes_of_marker.get(marker, ())

    def update(self, old: NodePodProbe | None, new: NodePodProbe) -> ProbesChange:
        """Index a new or changed NodePodProbe; return what changed."""
        name = new.key.name
        before = self.view(name)
        spec = old is None or _spec_differs(old, new)
        entries = {each.uid: each for each in new.spec.pod_probes or ()} if spec else before.entries
        statuses = {
            (each.namespace, each.name, each.uid): each
            for each in (new.status and new.status.pod_probe_statuses) or ()
        }
        removed = before.removed
        markers: set[NamespacedName] = set()
        if spec:
            removed |= _removed_probes(before.entries, entries)
            markers |= self._index_entries(name, before.entries, entries)
        pods: dict[NamespacedName, PodResultChange] = {}
        for identity, status in statuses.items():
            previous = before.statuses.get(identity)
            change = result_change(previous, status, removed)
            if change is not None:
                pods[NamespacedName(status.namespace, status.name)] = change
                markers.update(_markers_of_states(status))
                if previous is not None:  # markers of removed states must update their counts
                    markers.update(_markers_of_states(previous))
        for identity, status in before.statuses.items():
            if identity not in statuses:
                markers.update(_markers_of_states(status))
        after = NodeView(entries, statuses, removed)
        if removed:
            for key in _pods_with_valid_states(before, after) if spec else ():
                first_result = PodResultChange.FIRST_RESULT
                pods[key] = max(pods.get(key, first_result), first_result)
            after = after._replace(removed=_still_removed(before, after))
        self._views[name] = after
        return ProbesChange(spec, pods, frozenset(markers))

    def remove(self, name: str) -> ProbesChange:
        """Remove the NodePodProbe of a node; return what changed."""
        before = self._views.pop(name, _EMPTY_VIEW)
        markers = self._index_entries(name, before.entries, {})
        return ProbesChange(spec=True, pods={}, markers=frozenset(markers))

    def _index_entries(
        self, node: str, before: Mapping[str, PodProbe], after: Mapping[str, PodProbe]
    ) -> set[NamespacedName]:
        """Index the node by the markers of its entries; return the markers of the old and the new entries."""
        old, new = _markers_of_entries(before), _markers_of_entries(after)
        for marker in old - new:
            nodes = self._nodes_of_marker[marker]
            nodes.discard(node)
            if not nodes:
                del self._nodes_of_marker[marker]
        for marker in new - old:
            self._nodes_of_marker.setdefault(marker, set()).add(node)
        return old | new


def _removed_probes(
    before: Mapping[str, PodProbe], after: Mapping[str, PodProbe]
) -> frozenset[ProbeOfPod]:
    """The probes that were removed from the spec. Both mappings are by pod uid."""
    removed: set[ProbeOfPod] = set()
    for uid, entry in before.items():
        kept = after.get(uid)
        names = {each.name for each in (kept.probes if kept else None) or ()}
        removed.update((uid, each.name) for each in entry.probes or () if each.name not in names)
    return frozenset(removed)


def _pods_with_valid_states(before: NodeView, after: NodeView) -> set[NamespacedName]:
    """The pods with a state that counts again, as its probe returned with the same handler."""
    return {
        NamespacedName(status.namespace, status.name)
        for status in after.statuses.values()
        for each in status.probe_states or ()
        if before.is_outdated(status.uid, each) and not after.is_outdated(status.uid, each)
    }


def result_change(
    before: PodProbeStatus | None, after: PodProbeStatus, removed: AbstractSet[ProbeOfPod]
) -> PodResultChange | None:
    """Classify the change on one pod; None if only times changed.

    `removed` holds the probes that left the spec since their last result. Any change of their state is a first result.
    """
    old, new = (before and before.probe_states) or (), after.probe_states or ()
    changed = len(old) != len(new) or any(map(_differs, old, new))
    if not changed and not removed:
        return None
    change = PodResultChange.MESSAGE if changed else None
    states = {each.name: each for each in old}
    for each in new:
        known = states.get(each.name)
        if known is None or (after.uid, each.name) in removed:
            change = change if each == known else PodResultChange.FIRST_RESULT
        elif known.state != each.state:
            return PodResultChange.STATE
    return change


def _still_removed(before: NodeView, after: NodeView) -> frozenset[ProbeOfPod]:
    """The removed probes without a result since then. An outdated state that changes is not one."""
    uids = {uid for uid, _ in after.removed}
    old, new = _states(before.statuses, uids), _states(after.statuses, uids)
    return frozenset(
        (uid, name)
        for uid, name in after.removed
        if (state := new.get((uid, name))) is not None
        and (state == old.get((uid, name)) or after.is_outdated(uid, state))
    )


def _states(statuses: Statuses, uids: AbstractSet[str]) -> dict[ProbeOfPod, ContainerProbeState]:
    return {
        (status.uid, each.name): each
        for status in statuses.values()
        if status.uid in uids
        for each in status.probe_states or ()
    }


def _differs(left: ContainerProbeState, right: ContainerProbeState) -> bool:
    return (
        left.state != right.state
        or left.message != right.message
        or left.name != right.name
        or left.first_line_length != right.first_line_length
    )


def _spec_differs(old: NodePodProbe, new: NodePodProbe) -> bool:
    generation = new.metadata.generation
    if generation is not None and generation == old.metadata.generation:
        return False
    return old.spec != new.spec


def _markers_of_entries(entries: Mapping[str, PodProbe]) -> set[NamespacedName]:
    return {
        NamespacedName(entry.namespace, ProbeName.parse(probe.name).marker)
        for entry in entries.values()
        for probe in entry.probes or ()
    }


def _markers_of_states(status: PodProbeStatus) -> set[NamespacedName]:
    return {
        NamespacedName(status.namespace, ProbeName.parse(each.name).marker)
        for each in status.probe_states or ()
    }
