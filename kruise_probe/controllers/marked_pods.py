"""Index of pods by the marks that we own on them, as their `managedFields` show.

A namespace has few different sets of marks. So the search for stale marks of a marker checks each set, not each pod.

Source: no counterpart.
Differs: Kruise does not track its own marks.
"""

from collections.abc import Iterator

from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.pods import NOTHING_OWNED, Owned, Pod
from kruise_probe.controllers.compiled import CompiledMarker
from kruise_probe.informers.mutation_cache import MutationCache


class MarkedPods:
    """The pods that carry our marks, by namespace and by set of marks.

    `written` holds the responses to patches that the informer does not show yet.
    """

    def __init__(self, written: MutationCache[Pod]) -> None:
        self._pods: dict[str, dict[Owned, dict[NamespacedName, Pod]]] = {}
        self._written = written

    def set_pod(self, old: Pod | None, new: Pod) -> None:
        if old is not None:
            self.remove_pod(old)
        if new.owned is not NOTHING_OWNED:
            by_owned = self._pods.setdefault(new.namespace, {})
            by_owned.setdefault(new.owned, {})[new.key] = new

    def remove_pod(self, pod: Pod) -> None:
        by_owned = self._pods.get(pod.namespace, {})
        found = by_owned.get(pod.owned, {})
        found.pop(pod.key, None)
        if not found:
            by_owned.pop(pod.owned, None)

    def of_marker(self, marker: CompiledMarker) -> Iterator[Pod]:
        """The pods with a mark of ours that `marker` names, under any owner. Includes our newest writes."""
        for owned, pods in self._pods.get(marker.key.namespace, {}).items():
            if _names_any(marker, owned):
                yield from pods.values()
        for pod in self._written.unseen():
            if pod.namespace == marker.key.namespace and _names_any(marker, pod.owned):
                yield pod


def _names_any(marker: CompiledMarker, owned: Owned) -> bool:
    return bool(
        owned.labels & marker.labels
        or owned.annotations & marker.annotations
        or owned.condition_types & marker.condition_types
    )
