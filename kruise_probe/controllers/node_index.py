"""Index of NodePodProbes by pod and by marker, and which results an event changed.

The status change of a pod is a new state, a first result, or only a new message. A probe that leaves the spec and is
added again starts over: its next result is a first result. So markers in a selector cycle never get the unlimited writes of
state changes.

Source: no counterpart.
"""

from collections.abc import Collection, Iterable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.names import ProbeName
from kruise_probe.api.pods import Pod
from kruise_probe.api.v1alpha1 import (
    NodePodProbe,
    PodProbe,
    PodProbeStatus,
    ProbeState,
)
from kruise_probe.controllers.compiled import CompiledMarker
from kruise_probe.controllers.marking import States

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


class ResultsChange(NamedTuple):
    """The most important change in the results of one pod.

    Attributes:
        edited: the probes with the first result of another handler.
        seen_at: the loop time of the first change, once it is recorded; None for one by a serverless provider.
    """

    kind: PodResultChange
    edited: frozenset[str] = frozenset()
    seen_at: float | None = None


class ProbesChange(NamedTuple):
    """What an event of a NodePodProbe changed.

    Attributes:
        spec: whether the entries changed.
        pods: the pods of which a state or message changed. A newer time alone is no change.
        markers: the markers of all changed results, and of all entries if the spec changed.
    """

    spec: bool
    pods: Mapping[NamespacedName, ResultsChange]
    markers: frozenset[NamespacedName]


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
        view = self._views.get(pod.node, _EMPTY_VIEW)
        status = view.statuses.get((pod.namespace, pod.name, pod.uid))
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
        name = new.metadata.name
        before = self._views.get(name, _EMPTY_VIEW)
        spec = old is None or old.spec != new.spec
        entries = (
            {entry.uid: entry for entry in new.spec.pod_probes or ()} if spec else before.entries
        )
        statuses = {
            (status.namespace, status.name, status.uid): status
            for status in (new.status and new.status.pod_probe_statuses) or ()
        }
        self._views[name] = NodeView(entries, statuses)
        markers = self._index_entries(name, before.entries, entries) if spec else set()
        pods: dict[NamespacedName, ResultsChange] = {}
        for identity in {**before.statuses, **statuses}:
            old_status, status = before.statuses.get(identity), statuses.get(identity)
            if old_status == status:
                continue
            change, probes = _changed_results(old_status, status)
            for probe in probes:
                markers.add(NamespacedName(identity[0], ProbeName.parse(probe).marker))
            if probes and status is not None:
                pods[NamespacedName(status.namespace, status.name)] = change
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


def _changed_results(
    before: PodProbeStatus | None, after: PodProbeStatus | None
) -> tuple[ResultsChange, list[str]]:
    """The change of one pod's results, and the probes with any: none if only times changed."""
    removed = {state.name: state for state in (before and before.probe_states) or ()}
    kind = PodResultChange.MESSAGE
    names: list[str] = []
    edited: list[str] = []
    for state in (after and after.probe_states) or ():
        previous = removed.pop(state.name, None)
        if previous is None:
            kind = max(kind, PodResultChange.FIRST_RESULT)
        elif previous.state != state.state:
            kind = PodResultChange.STATE
        elif previous.message == state.message and previous.probe_hash == state.probe_hash:
            continue
        names.append(state.name)
        known = previous and previous.probe_hash
        if known and state.probe_hash and known != state.probe_hash:
            edited.append(state.name)
    return ResultsChange(kind, frozenset(edited)), [*names, *removed]


def _markers_of_entries(entries: Mapping[str, PodProbe]) -> set[NamespacedName]:
    return {
        NamespacedName(entry.namespace, ProbeName.parse(probe.name).marker)
        for entry in entries.values()
        for probe in entry.probes or ()
    }
