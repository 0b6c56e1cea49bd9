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
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from typing import Final

from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.pods import Pod
from kruise_probe.controllers.compiled import CompiledMarker
from kruise_probe.controllers.limits import MARKERS_REPORTED, first_markers

PodsIn = Callable[[str], Iterable[Pod]]
"""Returns the pods of a namespace."""
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
        probes_beyond: number of the probes of all other live markers.
    """

    __slots__ = ("_probes", "considered", "labels", "live", "pods", "probes_beyond")

    def __init__(self, labels: Mapping[str, str], live: list[CompiledMarker]) -> None:
        self.labels: Final = labels
        self.pods: Final[dict[str, Pod]] = {}
        self.live: Final = live
        self.considered: Considered = ()
        self.probes_beyond = 0
        self._probes = sum(len(marker.probes) for marker in live)
        self._consider(0)

    def add(self, marker: CompiledMarker) -> None:
        position = bisect_left(self.live, marker.order, key=_by_order)
        self.live.insert(position, marker)
        self._probes += len(marker.probes)
        self._consider(position)

    def remove(self, marker: CompiledMarker) -> None:
        position = bisect_left(self.live, marker.order, key=_by_order)
        del self.live[position]
        self._probes -= len(marker.probes)
        self._consider(position)

    def _consider(self, changed: int) -> None:
        if changed < MARKERS_REPORTED:
            self.considered = first_markers(self.live)
        self.probes_beyond = self._probes - sum(len(marker.probes) for marker in self.considered)


class _Namespace:
    """The label sets of one namespace, and its live markers by the labels that their selectors require."""

    def __init__(self, pods: Callable[[], Iterable[Pod]]) -> None:
        self._pods = pods
        self._key_uses: Counter[str] = Counter()
        """How many selectors mention a label key."""
        self._selecting_unlabelled = 0
        """How many selectors match pods without any of these keys. Without one, such pods are in no label set."""
        self._sets: dict[tuple[_Item, ...], LabelSet] = {}
        self._sets_with: dict[_Item, dict[LabelSet, None]] = {}
        self._by_anchor: dict[_Item | None, dict[NamespacedName, CompiledMarker]] = {}
        """Live markers; under None are those whose selector requires no value."""
        self.deleting: Final[dict[NamespacedName, CompiledMarker]] = {}
        self.size = 0
        """Number of markers."""

    def set_of(self, labels: Mapping[str, str]) -> LabelSet | None:
        return self._sets.get(self._key(labels))

    def add_pod(self, pod: Pod) -> None:
        key = self._key(pod.labels)
        found = self._sets.get(key)
        if found is None:
            if not key and not self._selecting_unlabelled:
                return
            labels = dict(key)
            found = self._sets[key] = LabelSet(labels, self._live_for(labels))
            for item in key:
                self._sets_with.setdefault(item, {})[found] = None
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
            sets = self._sets_with[item]
            del sets[found]
            if not sets:
                del self._sets_with[item]

    def selected_by(self, marker: CompiledMarker) -> list[LabelSet]:
        """The label sets that the selector matches."""
        selector = marker.selector
        candidates: list[LabelSet] = []
        for item in _required_items(marker):
            candidates += self._sets.values() if item is None else self._sets_with.get(item, ())
        return [found for found in candidates if selector.matches(found.labels)]

    def use_keys(self, marker: CompiledMarker) -> None:
        """Split the label sets by the keys that only this selector mentions."""
        used = self._key_uses
        added = {key for key in marker.selector.keys if not used[key]}
        with self._rekeyed(self._pods_with(added)):
            used.update(marker.selector.keys)
        if marker.selector.matches({}):
            self._selecting_unlabelled += 1
            if self._selecting_unlabelled == 1:
                for pod in self._pods():
                    if not self._key(pod.labels):
                        self.add_pod(pod)

    def release_keys(self, marker: CompiledMarker) -> None:
        """Merge the label sets that differ in keys that no other selector mentions."""
        used = self._key_uses
        unused = {key for key in marker.selector.keys if used[key] == 1}
        with self._rekeyed(self._selected_pods_with(unused)):
            used.subtract(marker.selector.keys)
            for key in unused:
                del used[key]
        self._selecting_unlabelled -= marker.selector.matches({})

    def add_marker(self, marker: CompiledMarker) -> None:
        self.size += 1
        if marker.deleting:
            self.deleting[marker.key] = marker
            return
        for item in _required_items(marker):
            self._by_anchor.setdefault(item, {})[marker.key] = marker
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
            of_item = self._by_anchor[item]
            del of_item[marker.key]
            if not of_item:
                del self._by_anchor[item]

    def _key(self, labels: Mapping[str, str]) -> tuple[_Item, ...]:
        used = self._key_uses
        return tuple([item for item in labels.items() if item[0] in used])

    def _live_for(self, labels: Mapping[str, str]) -> list[CompiledMarker]:
        candidates = [*self._by_anchor.get(None, {}).values()]
        for item in labels.items():
            candidates += self._by_anchor.get(item, {}).values()
        live = [marker for marker in candidates if marker.selector.matches(labels)]
        live.sort(key=_by_order)
        return live

    @contextmanager
    def _rekeyed(self, pods: list[Pod]) -> Iterator[None]:
        """Take pods out of their label sets, and put them into others at the end."""
        for pod in pods:
            self.remove_pod(pod)
        yield
        for pod in pods:
            self.add_pod(pod)

    def _pods_with(self, keys: set[str]) -> list[Pod]:
        """The pods with a label of these keys, which no selector mentions yet."""
        if not keys:
            return []
        return [pod for pod in self._pods() if not keys.isdisjoint(pod.labels)]

    def _selected_pods_with(self, keys: set[str]) -> list[Pod]:
        """The pods with a label of these keys, which selectors mention."""
        pods: list[Pod] = []
        for labels, found in self._sets.items():
            if any(key in keys for key, _ in labels):
                pods += found.pods.values()
        return pods


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
    """The markers of each pod, and the pods of each marker."""

    def __init__(self, pods_in: PodsIn) -> None:
        self._pods_in = pods_in
        self._namespaces: dict[str, _Namespace] = {}
        self.markers: Final[dict[NamespacedName, CompiledMarker]] = {}

    def considered_of(self, pod: Pod) -> Considered:
        """The markers that are considered for `pod`: one tuple for all pods of a label set, until a marker changes."""
        found = self.label_set_of(pod)
        return found.considered if found is not None else ()

    def label_set_of(self, pod: Pod) -> LabelSet | None:
        namespace = self._namespaces.get(pod.namespace)
        return namespace.set_of(pod.labels) if namespace is not None else None

    def markers_of(self, pod: Pod) -> tuple[CompiledMarker, ...]:
        """All markers that select `pod`, the oldest first, also those that are being deleted or not considered."""
        namespace = self._namespaces.get(pod.namespace)
        if namespace is None:
            return ()
        found = namespace.set_of(pod.labels)
        markers = [*found.live] if found is not None else []
        deleting = namespace.deleting.values()
        markers += [marker for marker in deleting if marker.selector.matches(pod.labels)]
        return tuple(sorted(markers, key=_by_order))

    def label_sets_of(self, marker: CompiledMarker) -> list[LabelSet]:
        """The label sets that `marker` selects."""
        namespace = self._namespaces.get(marker.key.namespace)
        return namespace.selected_by(marker) if namespace is not None else []

    def pods_of(self, marker: CompiledMarker) -> list[Pod]:
        """The pods that `marker` selects."""
        pods: list[Pod] = []
        for found in self.label_sets_of(marker):
            pods += found.pods.values()
        return pods

    def set_marker(self, marker: CompiledMarker) -> list[Pod]:
        """Add a marker, or replace the one of the same key. Return the pods for which other markers are considered now."""
        namespace = self._namespaces.get(marker.key.namespace)
        if namespace is None:
            namespace = _Namespace(partial(self._pods_in, marker.key.namespace))
            self._namespaces[marker.key.namespace] = namespace
        before = self.markers.get(marker.key)
        self.markers[marker.key] = marker
        namespace.use_keys(marker)
        with _changed(namespace, marker, before) as pods:
            if before is not None:
                namespace.remove_marker(before)
            namespace.add_marker(marker)
        if before is not None:
            namespace.release_keys(before)
        return pods

    def remove_marker(self, key: NamespacedName) -> list[Pod]:
        """Remove a marker, if there is one. Return the pods for which it was considered."""
        marker = self.markers.pop(key, None)
        if marker is None:
            return []
        namespace = self._namespaces[key.namespace]
        with _changed(namespace, marker) as pods:
            namespace.remove_marker(marker)
        if not namespace.size:
            del self._namespaces[key.namespace]
        else:
            namespace.release_keys(marker)
        return pods

    def set_pod(self, old: Pod | None, new: Pod) -> None:
        namespace = self._namespaces.get(new.namespace)
        if namespace is None:
            return
        if old is not None and old.labels != new.labels:
            namespace.remove_pod(old)
        namespace.add_pod(new)

    def remove_pod(self, pod: Pod) -> None:
        namespace = self._namespaces.get(pod.namespace)
        if namespace is not None:
            namespace.remove_pod(pod)


@contextmanager
def _changed(namespace: _Namespace, *markers: CompiledMarker | None) -> Iterator[list[Pod]]:
    """Yield a list that has at the end the pods of these markers for which other markers are considered than before."""
    before: dict[LabelSet, Considered] = {}
    for marker in markers:
        if marker is not None:
            for found in namespace.selected_by(marker):
                before[found] = found.considered
    pods: list[Pod] = []
    yield pods
    for found, considered in before.items():
        if found.considered != considered:
            pods += found.pods.values()
