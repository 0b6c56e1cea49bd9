"""Which live markers select which pods, kept by label set and changed incrementally.

Pods of one template share their labels. A *label set* holds the pods of a namespace whose labels are equal in all keys that
selectors of the namespace mention, and the markers that are considered for them. So an event of a pod finds its markers
without matching any selector, and an event of a marker visits only the label sets with a label that its selector requires.
Markers that are not considered, and markers being deleted, are in no `considered`.

Source: Cilium pkg/policy (SelectorCache): selectors are matched with identities, which are label sets, not with endpoints.
Differs: keys that no selector mentions are ignored, as each pod of a StatefulSet has labels of its own.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from operator import attrgetter
from typing import Final

from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.pods import Pod
from kruise_probe.controllers.buckets import Buckets
from kruise_probe.controllers.compiled import CompiledMarker
from kruise_probe.controllers.limits import MARKERS_REPORTED, first_markers

Considered = tuple[CompiledMarker, ...]
"""The live markers that may have an effect on a pod, the oldest first; see `limits.first_markers`."""

_Item = tuple[str, str]
_by_order = attrgetter("order")


class LabelSet:
    """Pods that the same markers select.

    Attributes:
        labels: their labels of the keys that selectors mention.
        pods: by uid.
        live: all live markers that select them, the oldest first.
        considered: changes only together with `live`.
    """

    __slots__ = ("considered", "labels", "live", "pods")

    def __init__(self, labels: Mapping[str, str], live: list[CompiledMarker]) -> None:
        self.labels: Final = labels
        self.pods: dict[str, Pod] = {}
        self.live: Final = live
        self.considered: Considered = first_markers(live)

    def add(self, marker: CompiledMarker) -> None:
        position = bisect_left(self.live, marker.order, key=_by_order)
        self.live.insert(position, marker)
        self._consider(position)

    def remove(self, marker: CompiledMarker) -> None:
        position = bisect_left(self.live, marker.order, key=_by_order)
        del self.live[position]
        self._consider(position)

    def _consider(self, changed: int) -> None:
        if changed < MARKERS_REPORTED:
            self.considered = first_markers(self.live)


class _Namespace:
    """The label sets of one namespace, and its live markers by the labels that their selectors require."""

    def __init__(self, pods: Callable[[], Iterable[Pod]]) -> None:
        self._pods = pods
        self._key_uses = Counter[str]()
        """How many selectors mention a label key."""
        self._sets: dict[frozenset[_Item], LabelSet] = {}
        self._sets_with = Buckets[_Item, LabelSet]()
        self._by_anchor = Buckets[_Item | None, CompiledMarker]()
        """Live markers; under None are those whose selector requires no value."""
        self.deleting: dict[NamespacedName, CompiledMarker] = {}
        self.size = 0
        """Number of markers."""
        for pod in pods():
            self.add_pod(pod)

    def set_of(self, labels: Mapping[str, str]) -> LabelSet | None:
        return self._sets.get(self._key(labels))

    def add_pod(self, pod: Pod) -> None:
        key = self._key(pod.labels)
        found = self._sets.get(key)
        if found is None:
            labels = dict(key)
            live = self._live_for(labels)
            found = self._sets[key] = LabelSet(labels, live)
            for item in key:
                self._sets_with.add(item, found)
        found.pods[pod.uid] = pod

    def remove_pod(self, pod: Pod) -> None:
        key = self._key(pod.labels)
        found = self._sets.get(key)
        if found is None:
            return
        found.pods.pop(pod.uid, None)
        if found.pods:
            return
        del self._sets[key]
        for item in key:
            self._sets_with.discard(item, found)

    def selected_by(self, marker: CompiledMarker) -> list[LabelSet]:
        """The label sets that the selector matches."""
        candidates: list[LabelSet] = []
        for item in _required_items(marker):
            if item is None:
                candidates += self._sets.values()
            else:
                candidates += self.sets_with(item)
        matches = marker.selector.matches
        return [label_set for label_set in candidates if matches(label_set.labels)]

    def sets_with(self, item: _Item) -> Iterable[LabelSet]:
        """The label sets with this label, also those that no marker selects."""
        return self._sets_with.of(item)

    def count_keys(self, marker: CompiledMarker, by: int) -> None:
        """Add or remove the keys of a marker. Those that no other mentions split or merge label sets."""
        uses = self._key_uses
        by_itself = max(-by, 0)
        own = {key for key in marker.label_keys if uses[key] == by_itself}
        moving = self._pods_with(own)
        for pod in moving:
            self.remove_pod(pod)
        for key in marker.label_keys:
            uses[key] += by
            if not uses[key]:
                del uses[key]
        for pod in moving:
            self.add_pod(pod)

    def _pods_with(self, keys: set[str]) -> list[Pod]:
        """The pods that have any of these labels."""
        if not keys:
            return []
        return [pod for pod in self._pods() if not keys.isdisjoint(pod.labels)]

    def add_marker(self, marker: CompiledMarker) -> None:
        self.size += 1
        if marker.deleting:
            self.deleting[marker.key] = marker
            return
        for item in _required_items(marker):
            self._by_anchor.add(item, marker)
        for found in self.selected_by(marker):
            found.add(marker)

    def remove_marker(self, marker: CompiledMarker) -> None:
        self.size -= 1
        if marker.deleting:
            del self.deleting[marker.key]
            return
        for found in self.selected_by(marker):
            found.remove(marker)
        for item in _required_items(marker):
            self._by_anchor.discard(item, marker)

    def _key(self, labels: Mapping[str, str]) -> frozenset[_Item]:
        used = self._key_uses
        items = [item for item in labels.items() if item[0] in used]
        return frozenset(items)

    def _live_for(self, labels: Mapping[str, str]) -> list[CompiledMarker]:
        by_anchor = self._by_anchor
        candidates = [*by_anchor.of(None)]
        for item in labels.items():
            candidates += by_anchor.of(item)
        live = [marker for marker in candidates if marker.selector.matches(labels)]
        live.sort(key=_by_order)
        return live


def _required_items(marker: CompiledMarker) -> Iterable[_Item | None]:
    """The labels of which a pod must have one; None if the selector requires no value."""
    if not marker.selector.requirements:
        return ()
    anchor = marker.selector.anchor
    if anchor is None:
        return (None,)
    key, values = anchor
    return [(key, value) for value in values]


class Matching:
    """The markers of each pod, and the pods of each marker. `pods_in` returns the pods of a namespace."""

    def __init__(self, pods_in: Callable[[str], Iterable[Pod]]) -> None:
        self._pods_in = pods_in
        self._namespaces: dict[str, _Namespace] = {}
        self.markers: dict[NamespacedName, CompiledMarker] = {}

    def considered_of(self, pod: Pod) -> Considered:
        """The markers that are considered for `pod`: one tuple for all pods of a label set, until a marker changes."""
        namespace = self._namespaces.get(pod.namespace)
        if namespace is None:
            return ()
        label_set = namespace.set_of(pod.labels)
        if label_set is None:
            return ()
        return label_set.considered

    def group_of(
        self,
        marker: CompiledMarker,
        label: str,
        value: str,
    ) -> list[Pod]:
        """The pods that `marker` selects with this value of a label that is one of its `label_keys`.

        The empty value includes pods without the label, and an empty label all pods.
        """
        namespace = self._namespaces.get(marker.key.namespace)
        if namespace is None:
            return []
        candidates = namespace.sets_with((label, value)) if value else namespace.selected_by(marker)
        group = []
        for label_set in candidates:
            labels = label_set.labels
            if labels.get(label, "") != value:
                continue
            if marker.selector.matches(labels):
                group.append(label_set)
        return _pods_in(group)

    def markers_of(self, pod: Pod) -> tuple[CompiledMarker, ...]:
        """All markers that select `pod`, the oldest first, also those that are being deleted or not considered."""
        namespace = self._namespaces.get(pod.namespace)
        if namespace is None:
            return ()
        deleting = namespace.deleting.values()
        markers = [marker for marker in deleting if marker.selector.matches(pod.labels)]
        label_set = namespace.set_of(pod.labels)
        if label_set is not None:
            markers += label_set.live
        markers.sort(key=_by_order)
        return tuple(markers)

    def label_sets_of(self, marker: CompiledMarker) -> list[LabelSet]:
        """The label sets that `marker` selects."""
        namespace = self._namespaces.get(marker.key.namespace)
        if namespace is None:
            return []
        return namespace.selected_by(marker)

    def pods_of(self, marker: CompiledMarker) -> list[Pod]:
        """The pods that `marker` selects."""
        return _pods_in(self.label_sets_of(marker))

    def set_marker(self, marker: CompiledMarker) -> list[Pod]:
        """Add a marker, or replace the one of the same key. Return the pods for which other markers are considered now."""
        return self._replace(marker.key, marker)

    def remove_marker(self, key: NamespacedName) -> list[Pod]:
        """Remove a marker, if there is one. Return the pods for which it was considered."""
        if key not in self.markers:
            return []
        return self._replace(key, None)

    def _replace(
        self,
        key: NamespacedName,
        new: CompiledMarker | None,
    ) -> list[Pod]:
        old = self.markers.pop(key, None)
        namespace = self._namespaces.get(key.namespace)
        if namespace is None:
            namespace = _Namespace(partial(self._pods_in, key.namespace))
            self._namespaces[key.namespace] = namespace
        before: dict[LabelSet, Considered] = {}
        if new is not None:
            self.markers[key] = new
            namespace.count_keys(new, 1)
            before |= _considered_in(namespace.selected_by(new))
        if old is not None:
            before |= _considered_in(namespace.selected_by(old))
            namespace.remove_marker(old)
        if new is not None:
            namespace.add_marker(new)
        changed = [found for found, considered in before.items() if found.considered != considered]
        pods = _pods_in(changed)
        if not namespace.size:
            del self._namespaces[key.namespace]
        elif old is not None:
            namespace.count_keys(old, -1)
        return pods

    def set_pod(self, old: Pod | None, new: Pod) -> None:
        namespace = self._namespaces.get(new.namespace)
        if namespace is None:
            return
        if old is not None:
            has_moved = old.labels != new.labels
            if has_moved:
                namespace.remove_pod(old)
        namespace.add_pod(new)

    def remove_pod(self, pod: Pod) -> None:
        namespace = self._namespaces.get(pod.namespace)
        if namespace is not None:
            namespace.remove_pod(pod)


def _considered_in(label_sets: Iterable[LabelSet]) -> dict[LabelSet, Considered]:
    return {label_set: label_set.considered for label_set in label_sets}


def _pods_in(label_sets: Iterable[LabelSet]) -> list[Pod]:
    pods: list[Pod] = []
    for label_set in label_sets:
        pods += label_set.pods.values()
    return pods
