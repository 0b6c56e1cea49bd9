"""From events to keys: everything that can change an answer asks for it again, and nothing else does.

Each handler first lets `Caches` follow, then compares before and after, and queues what the difference
concerns: at LOW and staggered what comes with the initial list, at HIGH changed results, else at NORMAL.

Source: Kruise pkg/controller/{podprobemarker,nodepodprobe}/*_event_handler.go.
Differs: labels, deletions, phases and started containers count there not at all, here both ways.
"""

import asyncio
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final, NamedTuple

from kruise_probe.api.core import Lease, Node
from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.names import node_of_agent_lease
from kruise_probe.api.pods import NOTHING_OWNED, Pod
from kruise_probe.api.v1alpha1 import NodePodProbe, PodProbeMarker
from kruise_probe.controllers.caches import Caches, ProbesChange
from kruise_probe.controllers.compiled import CompiledMarker, CompiledProbe
from kruise_probe.controllers.markers.pace import CensusPace
from kruise_probe.controllers.nodes.plan import is_probed
from kruise_probe.controllers.pods.claims import kept_gates
from kruise_probe.controllers.serverless import is_virtual
from kruise_probe.workqueue.priority import Priority
from kruise_probe.workqueue.rate_limiting import WorkQueue

INITIAL_KEYS_PER_SECOND: Final = 5000.0
"""How fast what the initial lists bring is queued: a quarter of the CPU when nothing is to be written."""


class Stagger:
    """Spreads keys over time, so that a large initial list leaves room for what happens meanwhile."""

    def __init__(self) -> None:
        self._next_at = 0.0

    def delay_seconds(self) -> float:
        now = asyncio.get_running_loop().time()
        self._next_at = max(self._next_at, now) + 1.0 / INITIAL_KEYS_PER_SECOND
        return self._next_at - now


class Keys(NamedTuple):
    """Where keys go."""

    pods: WorkQueue[NamespacedName]
    nodes: WorkQueue[str]
    agents: WorkQueue[str]
    census: CensusPace
    stagger: Stagger

    def pod(self, key: NamespacedName, initial: bool = False) -> None:
        """Has the marks of a pod looked at."""
        if initial:
            self.pods.add_after(key, self.stagger.delay_seconds(), Priority.LOW)
        else:
            self.pods.add(key)

    def node(self, name: str, initial: bool = False) -> None:
        """Has the plan of a node looked at."""
        if not name:
            return
        if initial:
            self.nodes.add_after(name, self.stagger.delay_seconds(), Priority.LOW)
        else:
            self.nodes.add(name)

    def counts(self, markers: Iterable[CompiledMarker]) -> None:
        """Has the status of markers looked at; at once if their deletion waits for what just happened."""
        for each in markers:
            if each.deleting:
                self.census.at_once(each.key)
            else:
                self.census.request(each.key)


class PodEvents:
    """Pods concern their own marks, the plan of their node, and the status of their markers."""

    def __init__(self, caches: Caches, keys: Keys) -> None:
        self._caches = caches
        self._keys = keys

    def on_add(self, obj: Pod, is_initial: bool) -> None:
        self._caches.follow_pod(None, obj)
        markers = self._caches.matching.markers_of(obj)
        if markers or obj.owned is not NOTHING_OWNED:
            self._keys.pod(obj.key, is_initial)
        if markers:
            self._keys.node(obj.node, is_initial)
            self._keys.counts(markers)

    def on_update(self, old: Pod, new: Pod) -> None:
        echo = self._caches.follow_pod(old, new)
        if old is new:
            self._look_again(new)
            return
        before = self._caches.matching.markers_of(old)
        after = before if old.labels == new.labels else self._caches.matching.markers_of(new)
        if before != after:
            self._concerns_all(old, new, (*before, *after))
            return
        if not after and new.owned is NOTHING_OWNED and old.owned is NOTHING_OWNED:
            return
        if after and _plan_may_differ(old, new):
            self._concerns_all(old, new, after)
        elif not echo and _marks_may_differ(old, new):
            self._keys.pod(new.key)
            if self._caches.node_is_virtual(new.node):
                self._keys.counts(after)
        self._left_behind(old, new)

    def on_delete(self, last_known: Pod) -> None:
        self._caches.follow_pod_deletion(last_known)
        markers = self._caches.matching.markers_of(last_known)
        self._keys.counts(markers)
        if markers or last_known.uid in self._caches.view(last_known.node).entries:
            self._keys.node(last_known.node)
        self._keys.counts(self._caches.matching.deleting(last_known.namespace).values())

    def _look_again(self, pod: Pod) -> None:
        """A resync: events may have been lost."""
        if self._caches.matching.markers_of(pod) or pod.owned is not NOTHING_OWNED:
            self._keys.pod(pod.key, initial=True)

    def _concerns_all(self, old: Pod, new: Pod, markers: Iterable[CompiledMarker]) -> None:
        self._keys.pod(new.key)
        self._keys.node(new.node)
        if old.node != new.node:
            self._keys.node(old.node)
        self._keys.counts(markers)
        self._left_behind(old, new)

    def _left_behind(self, old: Pod, new: Pod) -> None:
        """Marks came, went, or were let go of: what waits for that before a marker may end."""
        if old.owned == new.owned and kept_gates(old) == kept_gates(new):
            return
        deleting = self._caches.matching.deleting(new.namespace)
        if deleting:
            self._keys.node(new.node)
            self._keys.counts(deleting.values())


def _plan_may_differ(old: Pod, new: Pod) -> bool:
    return (
        old.ip != new.ip
        or old.node != new.node
        or old.started != new.started
        or old.containers != new.containers
        or is_probed(old) != is_probed(new)
    )


def _marks_may_differ(old: Pod, new: Pod) -> bool:
    return (
        old.conditions != new.conditions
        or old.labels != new.labels
        or old.annotations != new.annotations
        or old.owned != new.owned
        or old.active != new.active
    )


class MarkerEvents:
    """Markers concern the pods they match, those pods' nodes, and markers that want the same keys."""

    def __init__(self, caches: Caches, keys: Keys) -> None:
        self._caches = caches
        self._keys = keys

    def on_add(self, obj: PodProbeMarker, is_initial: bool) -> None:
        self._caches.markers.is_echo(obj)
        _, marker = self._caches.follow_marker(obj)
        pods = self._caches.matching.pods_of(marker)
        if is_initial:
            self._keys.census.request(obj.key, delay_seconds=self._keys.stagger.delay_seconds())
        else:
            self._keys.census.at_once(obj.key)
            self._count_rivals(pods)
        for pod in pods:
            self._keys.pod(pod.key, is_initial)
        self._plan_nodes(marker, pods, initial=is_initial)

    def on_update(self, old: PodProbeMarker, new: PodProbeMarker) -> None:
        echo = self._caches.markers.is_echo(new)
        if old is new:
            self._keys.census.request(new.key, delay_seconds=self._keys.stagger.delay_seconds())
            return
        if (
            old.spec == new.spec
            and old.deleting == new.deleting
            and old.metadata.generation == new.metadata.generation
        ):
            if not echo:
                self._keys.census.request(new.key)
            return
        before, after = self._caches.follow_marker(new)
        self._keys.census.at_once(new.key)
        pods = self._caches.matching.pods_of(after)
        if before is not None and before.selector != after.selector:
            pods += self._caches.matching.pods_of(before)
        if before is None or _marks_differ(before, after):
            for pod in pods:
                self._keys.pod(pod.key)
            self._count_rivals(pods)
        if before is None or _plans_differ(before, after):
            self._plan_nodes(after, pods)

    def on_delete(self, last_known: PodProbeMarker) -> None:
        marker = self._caches.follow_marker_deletion(last_known)
        pods = self._caches.matching.pods_of(marker)
        for pod in pods:
            self._keys.pod(pod.key)
        self._count_rivals(pods)
        self._plan_nodes(marker, pods)
        self._keys.census.at_once(last_known.key)

    def _plan_nodes(
        self, marker: CompiledMarker, pods: Iterable[Pod], *, initial: bool = False
    ) -> None:
        nodes = {pod.node for pod in pods} | set(self._caches.nodes_holding(marker.key))
        for node in sorted(nodes):
            self._keys.node(node, initial)

    def _count_rivals(self, pods: Iterable[Pod]) -> None:
        """Markers that match the same pods may have won or lost something."""
        rivals = {each for pod in pods for each in self._caches.matching.markers_of(pod)}
        for each in rivals:
            self._keys.census.request(each.key)


def _marks_differ(before: CompiledMarker, after: CompiledMarker) -> bool:
    """Whether an edit concerns what is written on pods; a container that a pod does not have takes its marks away."""
    if before.deleting != after.deleting or before.selector != after.selector:
        return True
    return [_written_of(each) for each in before.probes] != [
        _written_of(each) for each in after.probes
    ]


def _written_of(probe: CompiledProbe) -> tuple[object, ...]:
    return probe.name, probe.container, probe.condition_type, probe.policies


def _plans_differ(before: CompiledMarker, after: CompiledMarker) -> bool:
    """Whether an edit concerns what nodes are asked to probe."""
    if before.deleting != after.deleting or before.selector != after.selector:
        return True
    return [each.planned for each in before.probes] != [each.planned for each in after.probes]


class NodePodProbeEvents:
    """Results concern pods; a spec that is not as we wrote it concerns the plan; both concern markers.

    `result_seen` is told of each pod whose results changed.
    """

    def __init__(
        self,
        caches: Caches,
        keys: Keys,
        *,
        result_seen: Callable[[NamespacedName], None],
        is_silent: Callable[[str], bool],
    ) -> None:
        self._caches = caches
        self._keys = keys
        self._result_seen = result_seen
        self._is_silent = is_silent

    def on_add(self, obj: NodePodProbe, is_initial: bool) -> None:
        echo = self._caches.node_pod_probes.is_echo(obj)
        change = self._caches.follow_node_pod_probe(None, obj)
        if not echo:
            self._keys.node(obj.key.name, is_initial)
        if is_initial:
            return
        self._results(change)
        self._counts(change)

    def on_update(self, old: NodePodProbe, new: NodePodProbe) -> None:
        name = new.key.name
        echo = self._caches.node_pod_probes.is_echo(new)
        if old is new:
            self._keys.node(name, initial=True)
            return
        change = self._caches.follow_node_pod_probe(old, new)
        if not echo and (
            change.spec
            or old.metadata.owner_references != new.metadata.owner_references
            or old.deleting != new.deleting
        ):
            self._keys.node(name)
        if self._is_silent(name):
            self._keys.agents.add(name)
        self._results(change)
        self._counts(change)

    def on_delete(self, last_known: NodePodProbe) -> None:
        change = self._caches.follow_node_pod_probe_deletion(last_known)
        self._keys.node(last_known.key.name)
        self._counts(change)

    def _results(self, change: ProbesChange) -> None:
        ours = self._caches.namespace
        for key in change.pods:
            if not ours or key.namespace == ours:
                self._result_seen(key)
                self._keys.pods.add(key, Priority.HIGH)

    def _counts(self, change: ProbesChange) -> None:
        markers = self._caches.matching.markers
        self._keys.counts(markers[key] for key in change.markers if key in markers)


class NodeEvents:
    """A Node's birth, end, or change of kind concerns its plan, and what its pods' results are worth."""

    def __init__(self, caches: Caches, keys: Keys) -> None:
        self._caches = caches
        self._keys = keys

    def on_add(self, obj: Node, is_initial: bool) -> None:
        self._keys.node(obj.key.name, is_initial)
        if not is_initial:
            self._concerns_pods(obj)

    def on_update(self, old: Node, new: Node) -> None:
        if old is new:
            self._keys.node(new.key.name, initial=True)
        elif old.uid != new.uid or is_virtual(old) != is_virtual(new):
            self._keys.node(new.key.name)
            self._concerns_pods(new)

    def on_delete(self, last_known: Node) -> None:
        self._keys.node(last_known.key.name)
        self._concerns_pods(last_known)

    def _concerns_pods(self, node: Node) -> None:
        self._keys.agents.add(node.key.name)
        wake_pods(self._caches, self._keys, node.key.name)


class LeaseEvents:
    """Heartbeats. A renewal in time costs a dictionary entry: the timer at the old expiry looks again.

    Whatever makes a Lease expire sooner than that asks for a look at once.
    """

    def __init__(
        self,
        caches: Caches,
        keys: Keys,
        *,
        is_silent: Callable[[str], bool],
        now: Callable[[], datetime],
    ) -> None:
        self._caches = caches
        self._keys = keys
        self._is_silent = is_silent
        self._now = now

    def on_add(self, obj: Lease, is_initial: bool) -> None:
        node = node_of_agent_lease(obj.key.name)
        if node:
            self._caches.heartbeats.observe(node, obj, self._now())
            self._keys.agents.add(node, Priority.LOW if is_initial else Priority.NORMAL)

    def on_update(self, old: Lease, new: Lease) -> None:
        node = node_of_agent_lease(new.key.name)
        if not node:
            return
        before = self._caches.heartbeats.get(node)
        self._caches.heartbeats.observe(node, new, self._now())
        after = self._caches.heartbeats.get(node)
        sooner = before is None or after is None or after.expires_at < before.expires_at
        if sooner or self._is_silent(node):
            self._keys.agents.add(node)

    def on_delete(self, last_known: Lease) -> None:
        node = node_of_agent_lease(last_known.key.name)
        if node:
            self._caches.heartbeats.forget(node)
            self._keys.agents.add(node)


def wake_pods(caches: Caches, keys: Keys, node: str) -> None:
    """Has all pods of a node, and the status of their markers, looked at again."""
    for pod in caches.pods_on(node):
        markers = caches.matching.markers_of(pod)
        if markers:
            keys.pod(pod.key)
            keys.counts(markers)
