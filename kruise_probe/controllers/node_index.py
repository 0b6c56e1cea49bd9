"""Index of NodePodProbes by pod and by marker, and which results an event changed.

The status change of a pod is a new state, a first result, or only a new message. A probe that leaves the spec and is
added again starts over: its next result is a first result. So markers in a selector cycle never get the unlimited writes of
state changes.

Source: no counterpart.
"""

from collections.abc import Collection, Iterable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from kruise_probe.api.keys import NamespacedName, ProbeName
from kruise_probe.api.pods import Pod
from kruise_probe.api.v1alpha1 import (
    ContainerProbeState,
    NodePodProbe,
    PodProbe,
    PodProbeStatus,
    ProbeState,
)
from kruise_probe.controllers.compiled import CompiledMarker
from kruise_probe.controllers.pods.marking import States

PodIdentity = tuple[str, str, str]
"""Namespace, name and uid. A result belongs to a pod if all three are equal, as in Kruise."""

Statuses = Mapping[PodIdentity, PodProbeStatus]


class NodeView(NamedTuple):
    """A NodePodProbe indexed by pod: its entries (by uid) and the published results."""

    entries: Mapping[str, PodProbe]
    statuses: Statuses


_EMPTY_VIEW: Final = NodeView({}, {})


class PodResultChange(IntEnum):
    """The most important change in the results of one pod.

    MESSAGE: only messages changed, or a result was removed. FIRST_RESULT: a probe has its first result. STATE: a
    probe that stayed in the spec changed its state.
    """

    MESSAGE = 0
    FIRST_RESULT = 1
    STATE = 2


class ProbesChange(NamedTuple):
    """What an event of a NodePodProbe changed.

    Attributes:
        spec: whether the entries changed.
        pods: the pods of which a state or message changed, with the kind of change. A newer time alone is no change.
        markers: the markers of all changed entries and results.
        edited: by pod, the probes with the first result of another handler.
    """

    spec: bool
    pods: Mapping[NamespacedName, PodResultChange]
    markers: frozenset[NamespacedName]
    edited: Mapping[NamespacedName, frozenset[str]] = {}


class NodePodProbeIndex:
    """The entries and results of all NodePodProbes. `update` and `remove` keep it up to date."""

    def __init__(self) -> None:
        self._views: dict[str, NodeView] = {}
        self._nodes_of_marker: dict[NamespacedName, set[str]] = {}

    def view(self, node: str) -> NodeView:
        """The indexed NodePodProbe of `node`; empty if there is none."""
        return self._views.get(node, _EMPTY_VIEW)

    def states_of(self, pod: Pod, markers: Iterable[CompiledMarker]) -> States:
        """The states that the node of `pod` published for it, without results of handlers that `markers` no longer have.

        So a new policy is not applied to the result of an old command, also if the marker was deleted and created
        again. Unknown is no result of a handler. With Kruise's daemon or CRD states have no hash, and all count.
        """
        status = self.view(pod.node).statuses.get((pod.namespace, pod.name, pod.uid))
        states = {each.name: each for each in (status and status.probe_states) or ()}
        for marker in markers if states else ():
            for probe in marker.probes:
                state = states.get(probe.name)
                if state is None or not state.probe_hash or state.state == ProbeState.UNKNOWN:
                    continue
                if state.probe_hash != probe.hash_on(pod):
                    del states[probe.name]
        return states

    def nodes_holding(self, marker: NamespacedName) -> Collection[str]:
        """The nodes whose NodePodProbe holds an entry of `marker`."""
        return self._nodes_of_marker.get(marker, ())

    def update(self, old: NodePodProbe | None, new: NodePodProbe) -> ProbesChange:
        """Index a new or changed NodePodProbe; return what changed."""
        name = new.key.name
        before = self.view(name)
        spec = old is None or _spec_differs(old, new)
        entries = (
            {entry.uid: entry for entry in new.spec.pod_probes or ()} if spec else before.entries
        )
        statuses = {
            (status.namespace, status.name, status.uid): status
            for status in (new.status and new.status.pod_probe_statuses) or ()
        }
        self._views[name] = NodeView(entries, statuses)
        markers = self._index_entries(name, before.entries, entries) if spec else set()
        pods: dict[NamespacedName, PodResultChange] = {}
        edited: dict[NamespacedName, frozenset[str]] = {}
        for identity, status in statuses.items():
            previous = before.statuses.get(identity)
            change = result_change(previous, status)
            if change is None:
                continue
            key = NamespacedName(status.namespace, status.name)
            pods[key] = change
            markers |= _markers_of_states(status)
            if previous is not None:  # markers of removed states must update their counts
                markers |= _markers_of_states(previous)
                edited[key] = _edited_probes(previous, status)
        for identity in before.statuses.keys() - statuses.keys():
            markers |= _markers_of_states(before.statuses[identity])
        return ProbesChange(spec, pods, frozenset(markers), edited)

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


def result_change(before: PodProbeStatus | None, after: PodProbeStatus) -> PodResultChange | None:
    """Classify the change on one pod; None if only times changed. A result of an edited handler is a change."""
    old, new = (before and before.probe_states) or (), after.probe_states or ()
    if len(old) == len(new) and not any(map(_differs, old, new)):
        return None
    states = {state.name: state.state for state in old}
    changed = [state.name for state in new if states.get(state.name) != state.state]
    if any(name in states for name in changed):
        return PodResultChange.STATE
    return PodResultChange.FIRST_RESULT if changed else PodResultChange.MESSAGE


def _edited_probes(before: PodProbeStatus, after: PodProbeStatus) -> frozenset[str]:
    """The probes whose result is the first one of another handler."""
    hashes = {each.name: each.probe_hash for each in before.probe_states or ()}
    return frozenset(
        each.name
        for each in after.probe_states or ()
        if each.probe_hash and (hashes.get(each.name) or each.probe_hash) != each.probe_hash
    )


def _differs(left: ContainerProbeState, right: ContainerProbeState) -> bool:
    return (
        left.state != right.state
        or left.message != right.message
        or left.name != right.name
        or left.probe_hash != right.probe_hash
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
