"""Where our marks are: pods filed by what their `managedFields` say that we wrote, and patches that may write more.

Few different sets of marks occur in a namespace, so whether a marker left anything anywhere is answered by a look
at each set, not at each pod. A patch counts from the moment it is sent until the informer shows what came of it:
it may have been decided while a marker that is now being deleted still named something.

Source: no counterpart; Kruise does not know its own marks.
Differs: as said.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.pods import NOTHING_OWNED, Owned, Pod
from kruise_probe.controllers.compiled import CompiledMarker
from kruise_probe.controllers.mutation_cache import MutationCache
from kruise_probe.controllers.pods.marking import Changes


class MarkedPods:
    """The pods that carry anything of ours, by namespace and by what.

    `written` has the pods as patches left them that were answered, and that the informer does not show yet.
    """

    def __init__(self, written: MutationCache[Pod]) -> None:
        self._pods: dict[str, dict[Owned, dict[NamespacedName, Pod]]] = {}
        self._sent: dict[NamespacedName, Pod] = {}
        self._written = written

    def sent(self, pod: Pod, changes: Changes) -> None:
        """A pod is being patched, in one piece or in parts; what it puts there counts until `answered`."""
        labels, annotations = _put(changes.labels), _put(changes.annotations)
        if not (labels or annotations or changes.conditions):
            return
        self._sent[pod.key] = msgspec.structs.replace(
            pod,
            labels={**pod.labels, **labels},
            annotations={**pod.annotations, **annotations},
            conditions=tuple(changes.conditions),
            owned=Owned(
                condition_types=frozenset(each.type for each in changes.conditions),
                labels=frozenset(labels),
                annotations=frozenset(annotations),
            ),
        )

    def answered(self, pod: Pod) -> None:
        """All of it is done, or has failed; what it left there is in `written` from now on."""
        self._sent.pop(pod.key, None)

    def arriving_on(self, pods: Iterable[Pod]) -> list[Pod]:
        """Those of `pods` that the informer does not show yet as patches leave them, as these do."""
        return [
            each
            for pod in pods
            for each in (self._sent.get(pod.key), self._written.get(pod.key))
            if each is not None and each is not pod and each.uid == pod.uid
        ]

    def set_pod(self, old: Pod | None, new: Pod) -> None:
        """Follows a pod that appeared or changed."""
        if old is not None and old.owned is not new.owned:
            self.remove_pod(old)
        if new.owned is not NOTHING_OWNED:
            by_owned = self._pods.setdefault(new.namespace, {})
            by_owned.setdefault(new.owned, {})[new.key] = new

    def remove_pod(self, pod: Pod) -> None:
        """Forgets a pod."""
        by_owned = self._pods.get(pod.namespace, {})
        found = by_owned.get(pod.owned)
        if found is not None and found.pop(pod.key, None) is not None and not found:
            del by_owned[pod.owned]

    def of_marker(self, marker: CompiledMarker) -> Iterator[Pod]:
        """The pods that carry anything of ours that `marker` names, whoever claims it now, or that may come to."""
        for owned, pods in self._pods.get(marker.key.namespace, {}).items():
            if _concerns(owned, marker):
                yield from pods.values()
        for pod in (*self._sent.values(), *self._written.unseen()):
            if pod.namespace == marker.key.namespace and _concerns(pod.owned, marker):
                yield pod


def touches(changes: Changes, marker: CompiledMarker) -> bool:
    """Whether `changes` put anything on a pod that `marker` names. What they take away is there until an event says so."""
    put = Owned(
        condition_types=frozenset(each.type for each in changes.conditions),
        labels=frozenset(_put(changes.labels)),
        annotations=frozenset(_put(changes.annotations)),
    )
    return _concerns(put, marker)


def _concerns(owned: Owned, marker: CompiledMarker) -> bool:
    return bool(
        owned.labels & marker.labels
        or owned.annotations & marker.annotations
        or owned.condition_types & marker.condition_types
    )


def _put(values: Mapping[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in values.items() if value is not None}
