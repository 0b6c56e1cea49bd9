"""The entries and results of NodePodProbes, by pod and by marker, and what an event of one changed.

The change of a pod's results is a new state, a first result, or only a new message. A probe that leaves the spec and is
added again starts over: its next result is a first result. So markers in a selector cycle never get the unlimited writes of
state changes.

Source: no counterpart.
Differs: nothing.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from operator import attrgetter
from typing import Final, NamedTuple

from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.node_pod_probe import (
    ContainerProbeState,
    NodePodProbe,
    PodProbe,
    PodProbeStatus,
)
from kruise_probe.api.pods import Pod
from kruise_probe.api.v1alpha1 import ContainerProbe, ProbeState
from kruise_probe.controllers.buckets import Buckets
from kruise_probe.controllers.compiled import CompiledMarker, key_of_marker
from kruise_probe.controllers.marking import States

PodIdentity = tuple[str, str, str]
"""Namespace, name and uid. A result belongs to a pod if all three are equal, as in Kruise."""


class NodeView(NamedTuple):
    """A NodePodProbe indexed by pod: its entries (by uid) and the published results.

    Attributes:
        knows: the fields of `v1alpha1.CRITERIA` that its daemon knows.
    """

    entries: Mapping[str, PodProbe]
    statuses: Mapping[PodIdentity, PodProbeStatus]
    knows: frozenset[str] = frozenset()

    def states_of(self, pod: Pod) -> dict[str, ContainerProbeState]:
        """The published states of the pod's probes, whatever their hash."""
        identity = (pod.namespace, pod.name, pod.uid)
        return _by_name(self.statuses.get(identity))

    def current_states_of(self, pod: Pod, markers: Iterable[CompiledMarker]) -> States:
        """The published states of the pod's probes, without results of handlers that `markers` no longer have.

        So a new policy is not applied to the result of an old command, also if the marker was deleted and created
        again. Unknown is no result of a handler. With Kruise's daemon or CRD states have no hash, and all count.
        """
        states = self.states_of(pod)
        if not states:
            return states
        for marker in markers:
            for probe in marker.probes:
                state = states.get(probe.name)
                if state is None:
                    continue
                if not state.probe_hash or state.state == ProbeState.UNKNOWN:
                    continue
                if state.probe_hash != probe.hash_on(pod):
                    del states[probe.name]
        return states

    def entry_of(self, pod: Pod, probe: str) -> ContainerProbe | None:
        """The stored entry of a probe of the pod."""
        entry = self.entries.get(pod.uid)
        if entry is None:
            return None
        for stored in entry.probes:
            if stored.name == probe:
                return stored
        return None


_EMPTY_VIEW: Final = NodeView({}, {})


class PodResultChange(IntEnum):
    """The most important change in the results of one pod.

    MESSAGE: only messages changed, or a result was removed. FIRST_RESULT: a probe has its first result. STATE: a
    probe that stayed in the spec changed its state.
    """

    MESSAGE = 0
    FIRST_RESULT = 1
    STATE = 2


class ResultsChange(NamedTuple):
    """The most important change in the results of one pod.

    Attributes:
        edited: the probes with the first result of another handler.
        seen_at: the loop time of the first new state or result, once it is recorded; None without one, or for one by a
            serverless provider.
    """

    kind: PodResultChange
    edited: frozenset[str] = frozenset()
    seen_at: float | None = None


StatusChange = tuple[PodProbeStatus | None, PodProbeStatus | None]
"""The results of a pod before and after an event; None without any."""


class ProbesChange(NamedTuple):
    """What an event of a NodePodProbe changed.

    Attributes:
        spec: whether the entries changed.
        results: by pod, what changed. A newer time alone is no change.
        counted: the pods of which an entry or a result changed, also if the result was removed.
        markers: those of all entries, before and after, if the entries changed.
        statuses: the results that changed.
    """

    spec: bool
    results: Mapping[NamespacedName, ResultsChange]
    counted: Collection[NamespacedName]
    markers: Collection[NamespacedName]
    statuses: Sequence[StatusChange] = ()


class NodePodProbeIndex:
    """The entries and results of all NodePodProbes. `update` and `remove` keep it up to date."""

    def __init__(self) -> None:
        self._views: dict[str, NodeView] = {}
        self._nodes_of_marker = Buckets[NamespacedName, str]()
        self._markers_on: dict[str, set[NamespacedName]] = {}

    def view(self, node: str) -> NodeView:
        """The indexed NodePodProbe of `node`; empty if there is none."""
        return self._views.get(node, _EMPTY_VIEW)

    def nodes_holding(self, marker: NamespacedName) -> Collection[str]:
        """The nodes whose NodePodProbe holds an entry of `marker`."""
        return self._nodes_of_marker.of(marker)

    def markers_on(self, node: str) -> Collection[NamespacedName]:
        """The markers of the entries in the NodePodProbe of a node."""
        return self._markers_on.get(node, ())

    def update(self, old: NodePodProbe | None, new: NodePodProbe) -> ProbesChange:
        """Index a new or changed NodePodProbe; return what changed."""
        name = new.metadata.name
        before = self.view(name)
        entries = before.entries
        counted: dict[NamespacedName, None] = {}
        markers: Collection[NamespacedName] = ()
        is_changed = old is None or old.spec != new.spec
        if is_changed:
            entries = {entry.uid: entry for entry in new.spec.pod_probes}
            pods = _pods_of_changed_entries(before.entries, entries)
            counted = dict.fromkeys(pods)
            markers = self._index_entries(name, entries)
        statuses = {}
        for status in new.results:
            statuses[status.namespace, status.name, status.uid] = status
        knows: frozenset[str] = frozenset()
        if new.status is not None:
            knows = frozenset(new.status.known_fields)
        self._views[name] = NodeView(entries, statuses, knows)
        results = {}
        changed = []
        for identity in {**before.statuses, **statuses}:
            removed = before.statuses.get(identity)
            added = statuses.get(identity)
            change = _changed_results(removed, added)
            if change is None:
                continue
            changed.append((removed, added))
            namespace, pod_name, _ = identity
            pod = NamespacedName(namespace, pod_name)
            counted[pod] = None
            if added is not None:
                results[pod] = change
        return ProbesChange(is_changed, results, counted, markers, changed)

    def remove(self, name: str) -> ProbesChange:
        """Remove the NodePodProbe of a node; return what changed."""
        before = self._views.pop(name, _EMPTY_VIEW)
        counted = _pods_of_changed_entries(before.entries, {})
        markers = self._index_entries(name, {})
        return ProbesChange(True, {}, counted, markers)

    def _index_entries(self, node: str, entries: Mapping[str, PodProbe]) -> set[NamespacedName]:
        """Index the node by the markers of its entries; return the markers of the old and the new entries."""
        nodes = self._nodes_of_marker
        old = self._markers_on.pop(node, set())
        new = _markers_of_entries(entries)
        if new:
            self._markers_on[node] = new
        for marker in old - new:
            nodes.discard(marker, node)
        for marker in new - old:
            nodes.add(marker, node)
        return old | new


def _pods_of_changed_entries(
    before: Mapping[str, PodProbe], after: Mapping[str, PodProbe]
) -> list[NamespacedName]:
    """The pods whose entries were added, removed or changed."""
    both = {**before, **after}
    changed = []
    for uid, entry in both.items():
        if before.get(uid) == after.get(uid):
            continue
        pod = NamespacedName(entry.namespace, entry.name)
        changed.append(pod)
    return changed


def _changed_results(
    before: PodProbeStatus | None, after: PodProbeStatus | None
) -> ResultsChange | None:
    """The change of one pod's results; None if only times changed."""
    if before == after:
        return None
    removed = _by_name(before)
    kind = PodResultChange.MESSAGE
    is_changed = False
    edited = []
    for name, state in _by_name(after).items():
        previous = removed.pop(name, None)
        if previous is None:
            kind = max(kind, PodResultChange.FIRST_RESULT)
            is_changed = True
            continue
        if previous.state != state.state:
            kind = PodResultChange.STATE
        elif _content_of(previous) == _content_of(state):
            continue
        is_changed = True
        if not previous.probe_hash or not state.probe_hash:
            continue
        if previous.probe_hash != state.probe_hash:
            edited.append(name)
    if not is_changed and not removed:
        return None
    return ResultsChange(kind, frozenset(edited))


def _by_name(status: PodProbeStatus | None) -> dict[str, ContainerProbeState]:
    if status is None:
        return {}
    return {state.name: state for state in status.probe_states}


_content_of = attrgetter("message", "message_shortened", "probe_hash", "epoch")
"""What of a result is new information, if its state is the same."""


def _markers_of_entries(entries: Mapping[str, PodProbe]) -> set[NamespacedName]:
    markers = set()
    for entry in entries.values():
        for probe in entry.probes:
            marker = key_of_marker(entry.namespace, probe.name)
            markers.add(marker)
    return markers
