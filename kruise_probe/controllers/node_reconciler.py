"""Reconciles the NodePodProbe of one node. Key: the node's name.

A NodePodProbe exists exactly while its Node does, except for virtual nodes. Patches carry no resourceVersion: no one
else writes the spec, and status writes of the daemon must not cause conflicts. A manager of one namespace shares the
spec with other managers. Its patches repeat their entries as read, so they carry a resourceVersion.

Source: Kruise pkg/controller/podprobemarker (updateNodePodProbes), pkg/controller/nodepodprobe (syncNodePodProbe).
Differs: checks that the Node exists before it creates anything; an error on one node does not affect other nodes.
"""

from collections import Counter
from contextlib import suppress
from typing import Any, Final

import msgspec
from prometheus_client import Gauge

from kruise_probe.api.core import Node
from kruise_probe.api.errors import KubeError, NotFound, first_line
from kruise_probe.api.meta import OwnerReference, with_node_owner
from kruise_probe.api.names import LEFT_OUT_REASONS, REASON_NO_ROOM
from kruise_probe.api.node_pod_probe import NodePodProbe, PodProbe
from kruise_probe.api.resources import NODE_POD_PROBES
from kruise_probe.client.request import PatchType
from kruise_probe.client.rest import RestClient
from kruise_probe.controllers.budget import fit_steps
from kruise_probe.controllers.compiled import CompiledMarker
from kruise_probe.controllers.own_reads import OwnReads
from kruise_probe.controllers.plan import plan_steps
from kruise_probe.controllers.spec_pacer import SpecPacer
from kruise_probe.controllers.state import Altered, State, WrittenSpec
from kruise_probe.workqueue.controller import Result
from kruise_probe.workqueue.slices import Slices

_probes_left_out: Final = Gauge(
    "kruise_probe_probes_left_out",
    "Probes of pods that are not probed because of a limit.",
    ["reason"],
)


class NodeReconciler:
    """Writes the spec of NodePodProbes: one write per node and change, none if nothing differs.

    A change of what is known of the spec enqueues the markers of the node, and the pods whose probes no longer fit into its
    NodePodProbe, or fit again.
    """

    def __init__(
        self,
        state: State,
        client: RestClient,
        own_reads: OwnReads | None = None,
    ) -> None:
        self._own_reads = own_reads
        self._state = state
        self._queues = state.queues
        self._client = client
        self._slices = Slices()
        self._left_out = Counter[str]()
        """Probes of all nodes that a limit leaves out, by reason."""
        self._pacer = SpecPacer()

    async def reconcile(self, name: str) -> Result | None:
        state = self._state
        node = state.node(name)
        stored = state.node_pod_probe(name)
        if node is None or node.is_virtual:
            await self._delete(stored)
            self._record(name, None)
            self._pacer.forget(name)
            return None
        wait = self._pacer.wait_seconds(name)
        if wait:
            return Result(wait, finished=False)
        current: tuple[PodProbe, ...] = ()
        owners: tuple[OwnerReference, ...] | None = None
        if stored is not None:
            current = stored.spec.pod_probes
            references = stored.metadata.owner_references
            owners = with_node_owner(references, node.as_owner)
        known = state.spec(name)
        wanted, written = await self._decide(name, known, current)
        is_current = stored is not None and _is_current(known, wanted, current)
        if is_current and owners is None:
            if wanted != current:
                written = written._replace(altered=known.altered)
        else:
            self._pacer.record_size(name, sum(len(entry.probes) for entry in wanted))
            wait = self._pacer.wait_seconds(name)
            if wait:
                return Result(wait, finished=False)
            try:
                kept = await self._write(node, stored, wanted, owners)
            except KubeError as error:
                reason = first_line(str(error))
                self._record(name, known._replace(error=reason))
                raise
            if kept != wanted:  # remembered, so that no write is repeated
                written = written._replace(altered=Altered(wanted, kept))
        self._record(name, written)
        if self._own_reads is not None:
            await self._own_reads.create_missing(node)
        return None

    async def _decide(
        self,
        name: str,
        known: WrittenSpec,
        current: tuple[PodProbe, ...],
    ) -> tuple[tuple[PodProbe, ...], WrittenSpec]:
        """The entries that the node should have, and what is then known of them."""
        state = self._state
        planning = plan_steps(
            state.pods_on(name),
            state.matching.considered_of,
            current,
            ending=self._ending_on(name),
            namespace=state.namespace,
        )
        plan = await self._slices.run(planning)
        if _is_current(known, plan.entries, current):
            written = WrittenSpec(left_out=plan.left_out)
            return plan.entries, written
        fitting = fit_steps(plan.parts, plan.others)
        fitted = await self._slices.run(fitting)
        left_out = plan.left_out
        if fitted.probes_left_out:
            left_out = {**left_out, REASON_NO_ROOM: fitted.probes_left_out}
        written = WrittenSpec(no_room=fitted.no_room, left_out=left_out)
        return fitted.entries, written

    def _ending_on(self, name: str) -> list[CompiledMarker]:
        """The markers being deleted with entries on the node."""
        found = []
        for key in self._state.node_index.markers_on(name):
            marker = self._state.ending.get(key)
            if marker is not None:
                found.append(marker)
        return found

    async def _write(
        self,
        node: Node,
        stored: NodePodProbe | None,
        wanted: tuple[PodProbe, ...],
        owners: tuple[OwnerReference, ...] | None,
    ) -> tuple[PodProbe, ...]:
        """Create or patch the NodePodProbe; return the entries that the server has stored."""
        with self._pacer.writing(node.name):
            if stored is None:
                response = await self._create(node, wanted)
            else:
                response = await self._patch(stored, wanted, owners)
        self._state.informers.node_pod_probes.record_write(response)
        return response.spec.pod_probes

    async def _create(self, node: Node, wanted: tuple[PodProbe, ...]) -> NodePodProbe:
        spec = {}
        if wanted:
            spec["podProbes"] = wanted
        owners = [node.as_owner]
        metadata = {"name": node.name, "ownerReferences": owners}
        body = NODE_POD_PROBES.encode(metadata=metadata, spec=spec)
        return await self._client.create(NODE_POD_PROBES, body)

    async def _patch(
        self,
        stored: NodePodProbe,
        wanted: tuple[PodProbe, ...],
        owners: tuple[OwnerReference, ...] | None,
    ) -> NodePodProbe:
        spec = {"podProbes": wanted or None}
        metadata: dict[str, Any] = {}
        if owners is not None:
            metadata["ownerReferences"] = owners
        if self._state.namespace:
            metadata["resourceVersion"] = stored.resource_version
        patch: dict[str, Any] = {"spec": spec}
        if metadata:
            patch["metadata"] = metadata
        return await self._client.patch(
            NODE_POD_PROBES,
            stored.key,
            msgspec.json.encode(patch),
            patch_type=PatchType.MERGE,
        )

    async def _delete(self, stored: NodePodProbe | None) -> None:
        if stored is None or stored.deleting:
            return
        with suppress(NotFound):
            await self._client.delete(NODE_POD_PROBES, stored.key, uid=stored.uid)

    def _record(self, name: str, written: WrittenSpec | None) -> None:
        """Record what is known of the spec; None if the node has none. Enqueue what it concerns."""
        state = self._state
        before = state.spec(name)
        if written is None:
            state.specs.pop(name, None)
        else:
            state.specs[name] = written
        after = state.spec(name)
        if before == after:
            return
        if before.left_out != after.left_out:
            self._left_out.update(after.left_out)
            self._left_out.subtract(before.left_out)
            for reason in LEFT_OUT_REASONS:
                probes = self._left_out[reason]
                _probes_left_out.labels(reason).set(probes)
        concerns_all = before.is_altered != after.is_altered
        for pod in state.pods_on(name):
            had_no_room = before.no_room.get(pod.uid)
            has_no_room = after.no_room.get(pod.uid)
            if concerns_all or had_no_room != has_no_room:
                self._queues.enqueue_pod(pod.key)
                state.recount(pod.key)
        if before.error != after.error:
            state.enqueue_markers_on(name)


def _is_current(
    known: WrittenSpec,
    wanted: tuple[PodProbe, ...],
    current: tuple[PodProbe, ...],
) -> bool:
    """Whether the current entries are the wanted ones, or what the API server stored for them."""
    if wanted == current:
        return True
    return known.altered == Altered(wanted, current)
