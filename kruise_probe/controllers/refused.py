"""The pods with marks that the API server refuses, and how long such a pod waits for the next attempt.

Source: no counterpart. Kruise retries the pods of a node together.
Differs: nothing.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kruise_probe.api.meta import NamespacedName
from kruise_probe.controllers.writes import EVERY_MARKER

RETRY_SECONDS: Final = 0.1
"""Between two attempts in a namespace. So the refused pods of one owner cost the API server ten requests a second, or more if there
are over 600: none waits longer than MAX_RETRY_AFTER_SECONDS."""

Refusals = Mapping[str, str]
"""By marker, why the API server refuses its changes of a pod."""

NO_REFUSALS: Final[Refusals] = MappingProxyType({})


class RefusedPods:
    """What is refused, by namespace and pod."""

    def __init__(self) -> None:
        self._in_namespace: dict[str, dict[NamespacedName, Refusals]] = {}

    def in_namespace(self, namespace: str) -> Mapping[NamespacedName, Refusals]:
        return self._in_namespace.get(namespace, {})

    def of(self, pod: NamespacedName) -> Refusals:
        return self.in_namespace(pod.namespace).get(pod, NO_REFUSALS)

    def why(self, marker: str, pod: NamespacedName) -> str:
        """Why the API server refuses marks of `marker` on a pod, or empty."""
        refusals = self.of(pod)
        if not refusals:  # the common case
            return ""
        return refusals.get(marker) or refusals.get(EVERY_MARKER, "")

    def record(self, pod: NamespacedName, refusals: Refusals) -> None:
        """Replace what is refused of a pod."""
        if refusals:
            self._in_namespace.setdefault(pod.namespace, {})[pod] = refusals
        else:
            self.forget(pod)

    def forget(self, pod: NamespacedName) -> None:
        pods = self._in_namespace.get(pod.namespace)
        if pods is None:
            return
        pods.pop(pod, None)
        if not pods:
            del self._in_namespace[pod.namespace]

    def pause_seconds(self, namespace: str) -> float:
        """The least pause before a refused pod of the namespace is written again."""
        return len(self.in_namespace(namespace)) * RETRY_SECONDS
