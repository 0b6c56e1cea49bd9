"""Where our marks are: pods filed by what their `managedFields` say that we wrote.

Few different sets of marks occur in a namespace, so whether a marker left anything anywhere is answered by a look
at each set, not at each pod.

Source: no counterpart; Kruise does not know its own marks.
Differs: as said.
"""

from collections.abc import Iterator

from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.pods import NOTHING_OWNED, Owned, Pod
from kruise_probe.controllers.compiled import CompiledMarker


class MarkedPods:
    """The pods that carry anything of ours, by namespace and by what."""

    def __init__(self) -> None:
        self._pods: dict[str, dict[Owned, dict[NamespacedName, Pod]]] = {}

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
        """The pods that carry anything of ours that `marker` names, whoever claims it now."""
        for owned, pods in self._pods.get(marker.key.namespace, {}).items():
            if (
                owned.labels & marker.labels
                or owned.annotations & marker.annotations
                or owned.condition_types & marker.condition_types
            ):
                yield from pods.values()
