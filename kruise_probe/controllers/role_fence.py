"""Whether the cache has the effect of every write that could have given a pod a role.

A patch that sets the marks of a role (a *set*) has an effect that the cache shows later, or, after a failure, perhaps later or never.

- While the cache may lack it, the pod is *unsettled*: until the cache shows a later version of the pod, or, after a failure, for
  `LATE_SECONDS`. So a lost, delayed or repeated request does no harm.
- The cache of a namespace must be as new as a list that began while this manager led, so it has what an old leader wrote.

Source: no counterpart; optimistic concurrency as in client-go tools/leaderelection.
Differs: nothing.
"""

import math
from typing import Final, NamedTuple

from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.pods import Pod
from kruise_probe.api.resources import PODS
from kruise_probe.api.times import loop_time
from kruise_probe.client.rest import RestClient
from kruise_probe.informers.replica import Indexer, is_older

LATE_SECONDS: Final = 30.0
"""How long a failed request may still take effect: twice the Lease of its leader."""


class _Floor(NamedTuple):
    """The cache may lack the effect of a request until it shows this version of the pod, or until a loop time."""

    version: str
    until: float


class RoleFence:
    """What the cache of pods may lack, by pod and by namespace."""

    def __init__(self, pods: Indexer[Pod]) -> None:
        self._pods = pods
        self._floors: dict[str, _Floor] = {}
        """By uid."""
        self._current: set[str] = set()
        """The namespaces of which the cache is as new as a list that began while this manager led."""
        self._listing: set[str] = set()

    def is_unsettled(self, pod: Pod) -> bool:
        """Whether a set of `pod` may have, or take, an effect that the cache does not show."""
        floor = self._floors.get(pod.uid)
        if floor is None:
            return False
        if loop_time() >= floor.until:
            return False
        return is_older(pod.resource_version, floor.version)

    def begin_set(self, pod: Pod) -> None:
        """A set of `pod` is sent now, on condition of its version."""
        later = int(pod.resource_version) + 1
        self._floors[pod.uid] = _Floor(str(later), math.inf)

    def fail_set(self, pod: Pod) -> None:
        """No response to it: it may take effect later."""
        floor = self._floors.get(pod.uid)
        if floor is not None:
            ends_at = loop_time() + LATE_SECONDS
            self._floors[pod.uid] = floor._replace(until=ends_at)

    def forget(self, pod: Pod) -> None:
        """Remove a deleted pod."""
        self._floors.pop(pod.uid, None)

    def is_current(self, namespace: str) -> bool:
        """Whether the cache of the namespace has all that an old leader wrote."""
        return namespace in self._current

    async def make_current(self, namespace: str, client: RestClient) -> None:
        """List the pods of a namespace, and find out which versions the cache must show. Do nothing while that is in flight.

        Raises:
            KubeError: the list failed.
        """
        if namespace in self._listing:
            return
        self._listing.add(namespace)
        try:
            listed = await _list_versions(namespace, client)
        finally:
            self._listing.discard(namespace)
        is_complete = True
        for key, (uid, version) in listed.items():
            cached = self._pods.get(key)
            if cached is None or cached.uid != uid:
                is_complete = False
                continue
            if is_older(cached.resource_version, version):
                self._floors[uid] = _Floor(version, math.inf)
        if is_complete:
            self._current.add(namespace)


async def _list_versions(
    namespace: str, client: RestClient
) -> dict[NamespacedName, tuple[str, str]]:
    """The uid and the resourceVersion of each pod of a namespace."""
    listed = {}
    token = ""
    while True:
        page = await client.list_page(PODS, namespace=namespace, continue_token=token)
        for pod in page.items:
            listed[pod.key] = (pod.uid, pod.resource_version)
        token = page.continue_token
        if not token:
            return listed
