"""Index of pods by the marks that we own on them, as their `managedFields` show, and of patches in flight.

A namespace has few different sets of marks. So the search for stale marks of a marker checks each set, not each pod.
A patch counts from when it is sent until the informer shows its result. It may have been computed before the
deletion of a marker began, and may still write that marker's keys.

Source: no counterpart.
Differs: Kruise does not track its own marks.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.pods import NOTHING_OWNED, Owned, Pod
from kruise_probe.controllers.compiled import CompiledMarker
from kruise_probe.controllers.pods.marking import Changes
from kruise_probe.informers.mutation_cache import MutationCache


class MarkedPods:
    """The pods that carry our marks, by namespace and by set of marks.

    `written` holds the responses to patches that the informer does not show yet.
    """

    def __init__(self, written: MutationCache[Pod]) -> None:
        self._pods: dict[str, dict[Owned, dict[NamespacedName, Pod]]] = {}
        self._sent: dict[NamespacedName, Pod] = {}
        self._written = written

    def patch_sent(self, pod: Pod, changes: Changes) -> None:
        """Record a patch in flight, whole or in parts. The marks that it sets count until `patch_done`."""
        self._sent[pod.key] = msgspec.structs.replace(
            pod,
            labels={**pod.labels, **_without_removals(changes.labels)},
            annotations={**pod.annotations, **_without_removals(changes.annotations)},
            conditions=tuple(changes.conditions),
            owned=_set_by(changes),
        )

    def patch_done(self, pod: Pod) -> None:
        """Remove a patch in flight, successful or failed. Its response is in `written`."""
        self._sent.pop(pod.key, None)

    def unseen_versions(self, pods: Iterable[Pod]) -> list[Pod]:
        """Versions of `pods` that the informer does not show yet: as patched, or with a patch in flight applied."""
        return [
            each
            for pod in pods
            for each in (self._sent.get(pod.key), self._written.get(pod.key))
            if each is not None and each is not pod and each.uid == pod.uid
        ]

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
        """The pods with a mark of ours that `marker` names, under any owner. Includes patches in flight."""
        for owned, pods in self._pods.get(marker.key.namespace, {}).items():
            if _names_any(marker, owned):
                yield from pods.values()
        for pod in (*self._sent.values(), *self._written.unseen()):
            if pod.namespace == marker.key.namespace and _names_any(marker, pod.owned):
                yield pod


def sets_mark_of(marker: CompiledMarker, changes: Changes) -> bool:
    """Whether `changes` set anything that `marker` names. Removals do not count: the pod's event reports them."""
    return _names_any(marker, _set_by(changes))


def _set_by(changes: Changes) -> Owned:
    return Owned(
        condition_types=frozenset(each.type for each in changes.conditions),
        labels=frozenset(_without_removals(changes.labels)),
        annotations=frozenset(_without_removals(changes.annotations)),
    )


def _names_any(marker: CompiledMarker, owned: Owned) -> bool:
    return bool(
        owned.labels & marker.labels
        or owned.annotations & marker.annotations
        or owned.condition_types & marker.condition_types
    )


def _without_removals(values: Mapping[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in values.items() if value is not None}
