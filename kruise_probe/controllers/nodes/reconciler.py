"""Reconciles the NodePodProbe of one node. Key: the node's name.

A NodePodProbe exists exactly while its Node does, except for virtual nodes. Patches carry no resourceVersion: no one
else writes the spec, and status writes of the daemon must not cause conflicts. A manager of one namespace shares the
spec with other managers. Its patches repeat their entries as read, so they carry a resourceVersion.

Source: Kruise pkg/controller/podprobemarker (updateNodePodProbes), pkg/controller/nodepodprobe (syncNodePodProbe).
Differs: checks that the Node exists before it creates anything; an error on one node does not affect other nodes.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

import msgspec
from prometheus_client import Gauge

from kruise_probe.api.core import Node
from kruise_probe.api.errors import AlreadyExists, Conflict, KubeError, NotFound, first_line
from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.meta import OwnerReference, with_node_owner
from kruise_probe.api.names import LEFT_OUT_REASONS, REASON_NO_ROOM
from kruise_probe.api.pods import Pod
from kruise_probe.api.resources import NODE_POD_PROBES
from kruise_probe.api.v1alpha1 import NodePodProbe, PodProbe
from kruise_probe.client.request import PatchType
from kruise_probe.controllers.caches import Caches
from kruise_probe.controllers.compiled import CompiledMarker
from kruise_probe.controllers.limits import left_out_of, may_leave_out
from kruise_probe.controllers.mapping.nodes import enqueue_pods_on
from kruise_probe.controllers.nodes.budget import fit
from kruise_probe.controllers.nodes.plan import is_probed, plan, same_entries
from kruise_probe.controllers.queues import Queues
from kruise_probe.controllers.serverless import is_virtual
from kruise_probe.controllers.writes import (
    CATCH_UP_SECONDS,
    COMPLETE,
    NodeResult,
    StoredEntries,
    Writer,
    WriteResults,
)
from kruise_probe.workqueue.controller import Result

LONGEST_CATCH_UP_SECONDS: Final = 2.0
"""A cache that is behind for longer may never show the object, for example because it does not decode."""

_encoder = msgspec.json.Encoder()

_probes_left_out: Final = Gauge(
    "kruise_probe_probes_left_out",
    "Probes of pods that are not probed because of a limit.",
    ["reason"],
)


class _NodePlan(NamedTuple):
    """What the spec of a node should be.

    Attributes:
        ranks: the order of the markers of the entries.
        left_out: number of probes that the limits of a pod leave out, by reason.
    """

    entries: tuple[PodProbe, ...]
    ranks: Mapping[NamespacedName, object]
    left_out: Mapping[str, int]


_NO_PLAN: Final = _NodePlan((), {}, {})


class NodeReconciler:
    """Writes the spec of NodePodProbes: one write per node and change, none if nothing differs.

    `results` receives errors and missing room. A change enqueues the markers of the node, and the pods whose probes
    no longer fit into its NodePodProbe, or fit again.
    """

    def __init__(
        self, caches: Caches, client: Writer, queues: Queues, *, results: WriteResults
    ) -> None:
        self._caches = caches
        self._client = client
        self._queues = queues
        self._results = results
        self._behind: dict[str, tuple[str, float]] = {}
        """Per node, the resource version of a cache that was behind, and the loop time when that was first seen."""

    async def reconcile(self, name: str) -> Result | None:
        node_plan, result = _NO_PLAN, COMPLETE
        node = self._caches.node(name)
        stored = self._caches.node_pod_probes.get(NamespacedName("", name))
        try:
            if node is None or is_virtual(node):
                self._set_altered(name, None)
                await self._delete(stored)
            else:
                current = (stored.spec.pod_probes or ()) if stored is not None else ()
                node_plan = self._plan(name, current)
                result, again = await self._write(node, stored, current, node_plan)
                if again is not None:
                    return again
        except KubeError as error:
            before = self._results.node(name)
            self._record(name, before._replace(error=first_line(str(error))), node_plan.ranks)
            raise
        self._behind.pop(name, None)
        self._record(name, result, node_plan.ranks)
        self._record_planned(name, planned=node is not None)
        return None

    async def _write(
        self,
        node: Node,
        stored: NodePodProbe | None,
        current: tuple[PodProbe, ...],
        node_plan: _NodePlan,
    ) -> tuple[NodeResult, Result | None]:
        """Write the plan if it differs from `current`; return what is left out, and when to requeue."""
        name, (wanted, ranks, left_out) = node.metadata.name, node_plan
        present = stored.metadata.owner_references if stored is not None else None
        owners = with_node_owner(present or (), _owner(node))
        if stored is not None and owners is None and self._is_current(name, wanted, current):
            self._drop_altered(name, wanted, current)
            return NodeResult("", {}, left_out), None
        wanted, no_room, count = fit(wanted, current, ranks)
        if count:
            left_out = {**left_out, REASON_NO_ROOM: count}
        result = NodeResult("", no_room, left_out)
        if stored is None:
            return result, await self._create(node, wanted)
        if owners is None and self._is_current(name, wanted, current):
            self._drop_altered(name, wanted, current)
            return result, None
        return result, await self._patch(stored, wanted, owners)

    def _plan(self, node: str, current: tuple[PodProbe, ...]) -> _NodePlan:
        pods = self._caches.pods_on(node)
        matches: dict[str, tuple[CompiledMarker, ...]] = {
            pod.uid: self._caches.matching.markers_of(pod) for pod in pods
        }
        deleting = self._caches.matching.all_deleting
        wanted = plan(
            pods,
            lambda pod: matches[pod.uid],
            current,
            deleting=deleting,
            unseen=self._caches.marked.unseen_versions(pods) if deleting else (),
            namespace=self._caches.namespace,
        )
        ranks: dict[NamespacedName, object] = {
            marker.key: marker.order for each in matches.values() for marker in each
        }
        return _NodePlan(wanted, ranks, _left_out(pods, matches))

    def _is_current(
        self, name: str, wanted: tuple[PodProbe, ...], current: tuple[PodProbe, ...]
    ) -> bool:
        """Whether the current entries are the wanted ones, or what the API server stored for them."""
        if same_entries(wanted, current):
            return True
        altered = self._results.altered(name)
        return (
            altered is not None
            and same_entries(wanted, altered.written)
            and same_entries(current, altered.stored)
        )

    def _drop_altered(
        self, name: str, wanted: tuple[PodProbe, ...], current: tuple[PodProbe, ...]
    ) -> None:
        """Forget what the API server stored differently once it stores the wanted entries."""
        if same_entries(wanted, current):
            self._set_altered(name, None)

    def _set_altered(self, name: str, altered: StoredEntries | None) -> None:
        """Record what the API server stores. It decides which results count, so the pods are enqueued if it changes."""
        changed = (self._results.altered(name) is None) != (altered is None)
        self._results.set_altered(name, altered)
        if changed:
            enqueue_pods_on(name, self._caches, self._queues)

    async def _create(self, node: Node, wanted: tuple[PodProbe, ...]) -> Result | None:
        name = node.metadata.name
        body = {
            "apiVersion": NODE_POD_PROBES.api_version,
            "kind": NODE_POD_PROBES.kind,
            "metadata": {"name": name, "ownerReferences": [_owner(node)]},
            "spec": {"podProbes": wanted} if wanted else {},
        }
        try:
            response = await self._client.create(NODE_POD_PROBES, _encoder.encode(body))
        except AlreadyExists as error:
            return self._requeue_until_current(name, "", error)
        self._written(response, wanted)
        return None

    async def _patch(
        self,
        stored: NodePodProbe,
        wanted: tuple[PodProbe, ...],
        owners: tuple[OwnerReference, ...] | None,
    ) -> Result | None:
        body: dict[str, Any] = {"spec": {"podProbes": wanted or None}}
        metadata: dict[str, Any] = {}
        if owners is not None:
            metadata["ownerReferences"] = owners
        if self._caches.namespace:
            metadata["resourceVersion"] = stored.resource_version
        if metadata:
            body["metadata"] = metadata
        try:
            response = await self._client.patch(
                NODE_POD_PROBES, stored.key, _encoder.encode(body), patch_type=PatchType.MERGE
            )
        except (NotFound, Conflict) as error:
            self._caches.node_pod_probes.forget(stored.key)
            return self._requeue_until_current(stored.key.name, stored.resource_version, error)
        self._written(response, wanted)
        return None

    def _requeue_until_current(self, name: str, version: str, error: KubeError) -> Result:
        """Requeue after CATCH_UP_SECONDS while the cache is behind. An empty `version` means no object.

        Raises:
            KubeError: the cache showed this version for LONGEST_CATCH_UP_SECONDS. The node's result reports the
                error, and retries use backoff.
        """
        now = asyncio.get_running_loop().time()
        behind = self._behind.get(name)
        if behind is None or behind[0] != version:
            self._behind[name] = (version, now)
        elif now - behind[1] >= LONGEST_CATCH_UP_SECONDS:
            raise KubeError(
                f"the cache still shows an outdated NodePodProbe after {LONGEST_CATCH_UP_SECONDS:g} s ({error}). If the "
                "manager's log reports that it does not decode, delete it"
            ) from error
        return Result(CATCH_UP_SECONDS, finished=False)

    def _written(self, response: NodePodProbe, wanted: tuple[PodProbe, ...]) -> None:
        """Remember the response, and fields that the server pruned or defaulted, so that no write is repeated."""
        self._caches.node_pod_probes.record_write(response)
        stored = response.spec.pod_probes or ()
        altered = None if same_entries(stored, wanted) else StoredEntries(wanted, stored)
        self._set_altered(response.key.name, altered)

    async def _delete(self, stored: NodePodProbe | None) -> None:
        if stored is None or stored.deleting:
            return
        with suppress(NotFound):
            await self._client.delete(NODE_POD_PROBES, stored.key, uid=stored.uid)

    def _record(self, name: str, result: NodeResult, markers: Iterable[NamespacedName]) -> None:
        before = self._results.node(name)
        if before == result:
            return
        self._results.set_node(name, result)
        for reason in LEFT_OUT_REASONS:
            _probes_left_out.labels(reason).set(self._results.probes_left_out(reason))
        for marker in markers:
            self._queues.enqueue_marker_status(marker)
        for pod in self._caches.pods_on(name):
            if before.no_room.get(pod.uid) != result.no_room.get(pod.uid):
                self._queues.enqueue_pod(pod.key)

    def _record_planned(self, name: str, *, planned: bool) -> None:
        """Record that the node has a plan. At the first one, enqueue pods whose conditions `no_room` used before."""
        if self._results.set_planned(name, planned):
            for pod in self._caches.pods_on(name):
                if any(each.reason == REASON_NO_ROOM for each in pod.conditions):
                    self._queues.enqueue_pod(pod.key)


def _left_out(
    pods: Iterable[Pod], matches: Mapping[str, tuple[CompiledMarker, ...]]
) -> Mapping[str, int]:
    """Number of probes that the limits of a pod leave out, by reason."""
    counts: Counter[str] = Counter()
    if not may_leave_out({marker for each in matches.values() for marker in each}):
        return counts
    for pod in pods:
        markers = matches[pod.uid]
        left_out = left_out_of(pod, markers, ()) if is_probed(pod) else {}
        for marker in markers:
            if marker.key.name in left_out:
                counts[left_out[marker.key.name].reason] += len(marker.probes)
    return counts


def _owner(node: Node) -> OwnerReference:
    return OwnerReference("v1", "Node", node.metadata.name, node.uid)
