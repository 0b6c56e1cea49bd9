"""Reconciles the NodePodProbe of one node. Key: the node's name.

A NodePodProbe exists exactly while its Node does, except for virtual nodes. Patches carry no resourceVersion: no one
else writes the spec, and status writes of the daemon must not cause conflicts. A manager of one namespace shares the
spec with other managers. Its patches repeat their entries as read, so they carry a resourceVersion.

Source: Kruise pkg/controller/podprobemarker (updateNodePodProbes), pkg/controller/nodepodprobe (syncNodePodProbe).
Differs: checks that the Node exists before it creates anything; an error on one node does not affect other nodes.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

import msgspec

from kruise_probe.api.core import Node
from kruise_probe.api.errors import AlreadyExists, Conflict, KubeError, NotFound
from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.meta import OwnerReference
from kruise_probe.api.names import LEFT_OUT_REASONS, REASON_NO_ROOM
from kruise_probe.api.pods import Pod
from kruise_probe.api.resources import NODE_POD_PROBES
from kruise_probe.api.v1alpha1 import NodePodProbe, PodProbe
from kruise_probe.client.request import PatchType
from kruise_probe.controllers.caches import Caches
from kruise_probe.controllers.compiled import CompiledMarker
from kruise_probe.controllers.limits import left_out_of, may_leave_out, reported_without_room
from kruise_probe.controllers.metrics import PROBES_LEFT_OUT
from kruise_probe.controllers.nodes.budget import NoRoom, fit
from kruise_probe.controllers.nodes.plan import is_probed, plan, same_entries
from kruise_probe.controllers.serverless import is_virtual
from kruise_probe.controllers.writer import Writer
from kruise_probe.workqueue.controller import Result

CATCH_UP_SECONDS = 0.2
"""Requeue delay while the cache is behind the API server."""
LONGEST_CATCH_UP_SECONDS = 2.0
"""A cache that is behind for longer may never show the object, for example because it does not decode."""

_encoder = msgspec.json.Encoder()


class NodeOutcome(NamedTuple):
    """Why the spec of a node is incomplete: an error, or limits.

    Attributes:
        no_room: the probes that do not fit into the NodePodProbe.
        left_out: number of probes that a limit leaves out, by the limit's reason.
    """

    error: str
    no_room: NoRoom
    left_out: Mapping[str, int]


_COMPLETE: Final = NodeOutcome("", {}, {})


class _Planned(NamedTuple):
    """`ranks` is the order of the markers of the entries."""

    entries: tuple[PodProbe, ...]
    ranks: Mapping[NamespacedName, object]
    left_out: Mapping[str, int]


class NodeReconciler:
    """Writes the spec of NodePodProbes: one write per node and change, none if nothing differs.

    `on_outcome` is called with the markers of a node whose outcome changed, to update their status. `on_room` is
    called with the pods whose probes no longer fit into the node's NodePodProbe, or fit again.
    """

    def __init__(
        self,
        caches: Caches,
        client: Writer,
        *,
        on_outcome: Callable[[Iterable[NamespacedName]], None],
        on_room: Callable[[Iterable[NamespacedName]], None],
    ) -> None:
        self._caches = caches
        self._client = client
        self._on_outcome = on_outcome
        self._on_room = on_room
        self._planned: set[str] = set()
        self._outcomes: dict[str, NodeOutcome] = {}
        self._rewritten: dict[str, tuple[tuple[PodProbe, ...], tuple[PodProbe, ...]]] = {}
        self._behind: dict[str, tuple[str, float]] = {}

    @property
    def outcomes(self) -> Mapping[str, NodeOutcome]:
        """The nodes whose spec is incomplete, and why."""
        return self._outcomes

    @property
    def rewritten(self) -> Mapping[str, object]:
        """The nodes whose NodePodProbe the API server stores differently from what was written."""
        return self._rewritten

    def no_room(self, pod: Pod) -> Collection[str]:
        """The names of the markers whose probes of `pod` do not fit into the NodePodProbe of its node.

        Until the first plan of the node after a restart, the pod's conditions provide them.
        """
        if pod.node in self._planned:
            return self._outcomes.get(pod.node, _COMPLETE).no_room.get(pod.uid, ())
        entry = self._caches.view(pod.node).entries.get(pod.uid)
        running = [each.name for each in (entry.probes if entry else None) or ()]
        return reported_without_room(pod, self._caches.matching.markers_of(pod), running)

    async def reconcile(self, name: str) -> Result | None:
        markers: set[NamespacedName] = set()
        outcome = _COMPLETE
        node = self._caches.node(name)
        stored = self._caches.node_pod_probes.get(NamespacedName("", name))
        try:
            if node is None or is_virtual(node):
                self._rewritten.pop(name, None)
                await self._delete(stored)
            else:
                outcome, again = await self._write(node, stored, markers)
                if again is not None:
                    return again
        except KubeError as error:
            before = self._outcomes.get(name, _COMPLETE)
            self._record(name, before._replace(error=_first_sentence(error)), markers)
            raise
        self._behind.pop(name, None)
        self._record(name, outcome, markers)
        self._note_planned(name, planned=node is not None)
        return None

    async def _write(
        self, node: Node, stored: NodePodProbe | None, markers: set[NamespacedName]
    ) -> tuple[NodeOutcome, Result | None]:
        name = node.metadata.name
        current = (stored.spec.pod_probes or ()) if stored is not None else ()
        wanted, ranks, left_out = self._plan(name, current)
        markers.update(ranks)
        owners = _owners(node, stored)
        if stored is not None and owners is None and self._is_current(name, wanted, current):
            return NodeOutcome("", {}, left_out), None
        wanted, no_room, count = fit(wanted, current, ranks)
        if count:
            left_out = {**left_out, REASON_NO_ROOM: count}
        outcome = NodeOutcome("", no_room, left_out)
        if stored is None:
            return outcome, await self._create(node, wanted)
        if owners is None and self._is_current(name, wanted, current):
            return outcome, None
        return outcome, await self._patch(stored, wanted, owners)

    def _plan(self, node: str, current: tuple[PodProbe, ...]) -> _Planned:
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
            arriving=self._caches.marked.arriving_on(pods) if deleting else (),
            namespace=self._caches.namespace,
        )
        ranks: dict[NamespacedName, object] = {
            marker.key: marker.order for each in matches.values() for marker in each
        }
        return _Planned(wanted, ranks, _left_out(pods, matches))

    def _is_current(
        self, name: str, wanted: tuple[PodProbe, ...], current: tuple[PodProbe, ...]
    ) -> bool:
        """Whether the current entries are the wanted ones, or what the API server stored for them."""
        if same_entries(wanted, current):
            self._rewritten.pop(name, None)
            return True
        rewritten = self._rewritten.get(name)
        return (
            rewritten is not None
            and same_entries(wanted, rewritten[0])
            and same_entries(current, rewritten[1])
        )

    async def _create(self, node: Node, wanted: tuple[PodProbe, ...]) -> Result | None:
        name = node.metadata.name
        body = {
            "apiVersion": NODE_POD_PROBES.api_version,
            "kind": NODE_POD_PROBES.kind,
            "metadata": {"name": name, "ownerReferences": [_owner(node)]},
            "spec": {"podProbes": wanted} if wanted else {},
        }
        try:
            answer = await self._client.create(NODE_POD_PROBES, _encoder.encode(body))
        except AlreadyExists as error:
            return self._requeue_until_current(name, "", error)
        self._written(answer, wanted)
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
            answer = await self._client.patch(
                NODE_POD_PROBES, stored.key, _encoder.encode(body), patch_type=PatchType.MERGE
            )
        except (NotFound, Conflict) as error:
            self._caches.node_pod_probes.forget(stored.key)
            return self._requeue_until_current(stored.key.name, stored.resource_version, error)
        self._written(answer, wanted)
        return None

    def _requeue_until_current(self, name: str, version: str, error: KubeError) -> Result:
        """Requeues after CATCH_UP_SECONDS while the cache is behind. An empty `version` means no object.

        Raises:
            KubeError: the cache showed this version for LONGEST_CATCH_UP_SECONDS. The node's outcome reports the
                error, and retries use backoff.
        """
        now = asyncio.get_running_loop().time()
        behind = self._behind.get(name)
        if behind is None or behind[0] != version:
            self._behind[name] = (version, now)
        elif now - behind[1] >= LONGEST_CATCH_UP_SECONDS:
            raise KubeError(
                f"the NodePodProbe is not as it was seen last; if the log says that it does not decode, delete it ({error})"
            ) from error
        return Result(CATCH_UP_SECONDS)

    def _written(self, answer: NodePodProbe, wanted: tuple[PodProbe, ...]) -> None:
        """Remembers the response. If the server pruned or defaulted fields, remembers that too, to avoid rewrites."""
        self._caches.node_pod_probes.wrote(answer)
        kept = answer.spec.pod_probes or ()
        if same_entries(kept, wanted):
            self._rewritten.pop(answer.key.name, None)
        else:
            self._rewritten[answer.key.name] = (wanted, kept)

    async def _delete(self, stored: NodePodProbe | None) -> None:
        if stored is None or stored.deleting:
            return
        with suppress(NotFound):
            await self._client.delete(NODE_POD_PROBES, stored.key, uid=stored.uid)
        self._caches.node_pod_probes.forget(stored.key)

    def _record(self, name: str, outcome: NodeOutcome, markers: Iterable[NamespacedName]) -> None:
        before = self._outcomes.get(name, _COMPLETE)
        if before == outcome:
            return
        if outcome == _COMPLETE:
            del self._outcomes[name]
        else:
            self._outcomes[name] = outcome
        for reason in LEFT_OUT_REASONS:
            count = sum(each.left_out.get(reason, 0) for each in self._outcomes.values())
            PROBES_LEFT_OUT.labels(reason).set(count)
        self._on_outcome(markers)
        if before.no_room != outcome.no_room:
            self._on_room(
                pod.key
                for pod in self._caches.pods_on(name)
                if before.no_room.get(pod.uid) != outcome.no_room.get(pod.uid)
            )

    def _note_planned(self, name: str, *, planned: bool) -> None:
        """Marks the node as planned: `no_room` now uses the plan instead of the pods' conditions."""
        if not planned:
            self._planned.discard(name)
        elif name not in self._planned:
            self._planned.add(name)
            self._on_room(
                pod.key
                for pod in self._caches.pods_on(name)
                if any(each.reason == REASON_NO_ROOM for each in pod.conditions)
            )


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
        if left_out:
            for marker in markers:
                if marker.live and marker.key.name in left_out:
                    counts[left_out[marker.key.name].reason] += len(marker.probes)
    return counts


def _owner(node: Node) -> OwnerReference:
    return OwnerReference("v1", "Node", node.metadata.name, node.uid)


def _owners(node: Node, stored: NodePodProbe | None) -> tuple[OwnerReference, ...] | None:
    """The owner references to write, or None if this Node is already the only Node among the owners."""
    present = (stored.metadata.owner_references or ()) if stored is not None else ()
    owner = _owner(node)
    nodes = [each for each in present if each.is_node]
    if nodes == [owner]:
        return None
    return (*(each for each in present if each not in nodes), owner)


def _first_sentence(error: KubeError) -> str:
    return str(error).partition("\n")[0][:200]
