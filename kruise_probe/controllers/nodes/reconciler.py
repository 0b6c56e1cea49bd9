"""Makes one NodePodProbe ask for what its node should probe. Key: the node's name.

A NodePodProbe exists exactly while its Node does, virtual nodes excepted. Patches carry no resourceVersion: nobody
else writes the spec, and the daemon's status is not ours to conflict with. A manager of one namespace has others beside
it: there a patch holds their entries as they were read, so it must not meet newer ones.

Source: Kruise pkg/controller/podprobemarker (updateNodePodProbes), pkg/controller/nodepodprobe (syncNodePodProbe).
Differs: the Node is looked up before anything is created; one node's failure is that node's alone.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from kruise_probe.api.core import Node
from kruise_probe.api.errors import AlreadyExists, Conflict, KubeError, NotFound
from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.meta import OwnerReference
from kruise_probe.api.resources import NODE_POD_PROBES
from kruise_probe.api.v1alpha1 import NodePodProbe, PodProbe
from kruise_probe.client.request import PatchType
from kruise_probe.controllers.caches import Caches
from kruise_probe.controllers.compiled import CompiledMarker
from kruise_probe.controllers.nodes.budget import fit
from kruise_probe.controllers.nodes.plan import plan, same_entries
from kruise_probe.controllers.serverless import is_virtual
from kruise_probe.controllers.writer import Writer
from kruise_probe.workqueue.consume import Result

CATCH_UP_SECONDS = 0.2
"""Until the next look when the API server knows of an object's birth, change or end before the cache does."""
LONGEST_CATCH_UP_SECONDS = 2.0
"""After this time the cache is not just late: it may never show the object, as one that does not decode."""

_encoder = msgspec.json.Encoder()


class NodeOutcome(NamedTuple):
    """What keeps a node from showing what it should: an error, or pods (by marker) without room."""

    error: str
    left_out: Mapping[NamespacedName, int]


class NodeReconciler:
    """Writes the spec of NodePodProbes: one write per node and change, none when nothing differs.

    `on_outcome` is called with the markers of a node whose outcome changed, so that their status may tell.
    """

    def __init__(
        self,
        caches: Caches,
        client: Writer,
        *,
        on_outcome: Callable[[Iterable[NamespacedName]], None],
    ) -> None:
        self._caches = caches
        self._client = client
        self._on_outcome = on_outcome
        self._outcomes: dict[str, NodeOutcome] = {}
        self._rewritten: dict[str, tuple[tuple[PodProbe, ...], tuple[PodProbe, ...]]] = {}
        self._behind: dict[str, tuple[str, float]] = {}

    @property
    def outcomes(self) -> Mapping[str, NodeOutcome]:
        """The nodes that fall short, and why."""
        return self._outcomes

    @property
    def rewritten(self) -> Mapping[str, object]:
        """The nodes whose NodePodProbe the API server stores otherwise than it was written."""
        return self._rewritten

    async def reconcile(self, name: str) -> Result | None:
        markers: set[NamespacedName] = set()
        left_out: Mapping[NamespacedName, int] = {}
        node = self._caches.node(name)
        stored = self._caches.node_pod_probes.get(NamespacedName("", name))
        try:
            if node is None or is_virtual(node):
                self._rewritten.pop(name, None)
                await self._delete(stored)
            else:
                left_out, again = await self._write(node, stored, markers)
                if again is not None:
                    return again
        except KubeError as error:
            self._record(name, NodeOutcome(_first_sentence(error), left_out), markers)
            raise
        self._behind.pop(name, None)
        self._record(name, NodeOutcome("", left_out), markers)
        return None

    async def _write(
        self, node: Node, stored: NodePodProbe | None, markers: set[NamespacedName]
    ) -> tuple[Mapping[NamespacedName, int], Result | None]:
        name = node.metadata.name
        current = (stored.spec.pod_probes or ()) if stored is not None else ()
        wanted, ranks = self._plan(name, current)
        markers.update(ranks)
        owners = _owners(node, stored)
        if stored is not None and owners is None and self._stands(name, wanted, current):
            return {}, None
        wanted, left_out = fit(wanted, current, ranks)
        if stored is None:
            return left_out, await self._create(node, wanted)
        if owners is None and self._stands(name, wanted, current):
            return left_out, None
        return left_out, await self._patch(stored, wanted, owners)

    def _plan(
        self, node: str, current: tuple[PodProbe, ...]
    ) -> tuple[tuple[PodProbe, ...], dict[NamespacedName, object]]:
        """The wanted entries, and the order of the live markers that they come from."""
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
        return wanted, ranks

    def _stands(
        self, name: str, wanted: tuple[PodProbe, ...], current: tuple[PodProbe, ...]
    ) -> bool:
        """Whether what stands is what is wanted, or what the API server makes of it."""
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
            return self._catch_up(name, "", error)
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
            return self._catch_up(stored.key.name, stored.resource_version, error)
        self._written(answer, wanted)
        return None

    def _catch_up(self, name: str, version: str, error: KubeError) -> Result:
        """Looks again soon, until the cache has shown the same version (empty for nothing) for too long.

        Raises:
            KubeError: it has; so the node's outcome tells, and the tries get fewer.
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
        """Remembers the answer; where the server pruned or defaulted, also that this is as good as it gets."""
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
        before = self._outcomes.get(name)
        fine = not outcome.error and not outcome.left_out
        if before == (None if fine else outcome):
            return
        if fine:
            del self._outcomes[name]
        else:
            self._outcomes[name] = outcome
        self._on_outcome({*markers, *(before.left_out if before is not None else ())})


def _owner(node: Node) -> OwnerReference:
    return OwnerReference("v1", "Node", node.metadata.name, node.uid)


def _owners(node: Node, stored: NodePodProbe | None) -> tuple[OwnerReference, ...] | None:
    """The owner references to write, or None when the Node is among them already and no other Node is."""
    present = (stored.metadata.owner_references or ()) if stored is not None else ()
    owner = _owner(node)
    nodes = [each for each in present if each.is_node]
    if nodes == [owner]:
        return None
    return (*(each for each in present if each not in nodes), owner)


def _first_sentence(error: KubeError) -> str:
    return str(error).partition("\n")[0][:200]
