"""Reconciles the status and the finalizer of a marker. Key: namespace/name.

The first reconcile adds the finalizer; the planning of entries does not wait for it. If a marker is deleted without
the finalizer, its entries and marks are found from the nodes and pods. The finalizer is removed when no NodePodProbe
holds an entry and no pod carries a mark. All of that is read from synced caches, so a failed read cannot remove it.

Source: Kruise pkg/controller/podprobemarker (Reconcile, handlerPodProbeMarkerFinalizer).
Differs: deletion waits for all entries and marks that exist, not for the pods that match at that moment.
"""

import asyncio
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final, Protocol

import msgspec

from kruise_probe.api.errors import Conflict, KubeError, NotFound
from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.names import MARKER_FINALIZER
from kruise_probe.api.pods import Pod
from kruise_probe.api.resources import MARKERS
from kruise_probe.api.v1alpha1 import Condition, PodProbeMarker, PodProbeMarkerStatus
from kruise_probe.client.event_series import ObjectReference
from kruise_probe.client.request import PatchType
from kruise_probe.controllers.caches import Caches
from kruise_probe.controllers.compiled import CompiledMarker
from kruise_probe.controllers.limits import left_out_of
from kruise_probe.controllers.markers import census as counting
from kruise_probe.controllers.markers.census import Sighting, Tally, census
from kruise_probe.controllers.markers.pace import CensusPace
from kruise_probe.controllers.markers.status import differs, encode_status, pruned_fields
from kruise_probe.controllers.nodes.plan import is_probed
from kruise_probe.controllers.nodes.reconciler import NodeReconciler
from kruise_probe.controllers.pods.claims import claims_of, conflicts_of, has_residue
from kruise_probe.controllers.pods.marking import States
from kruise_probe.controllers.pods.reconciler import PodReconciler
from kruise_probe.controllers.serverless import is_virtual, states_of
from kruise_probe.controllers.writer import Writer
from kruise_probe.workqueue.controller import Result

CATCH_UP_SECONDS: Final = 0.2
"""Requeue delay after a conflict with another writer of the marker."""

DELETION_CHECK_SECONDS: Final = 5.0
"""Requeue interval of a marker whose deletion waits; after this time its status reports why."""


CENSUS_SLICE: Final = 256
"""Pods that are counted before yielding to the event loop, about 4 ms."""

PRUNED_LOOK_SECONDS: Final = 30.0
"""Requeue interval while the CRD prunes status fields, in case a new CRD keeps them."""


class Recorder(Protocol):
    """Records Warning events, such as `EventRecorder`."""

    def event(self, involved: ObjectReference, type: str, reason: str, message: str) -> None: ...


class MarkerReconciler:
    """Writes a marker's finalizer, and its status at most once a second and only if it differs.

    `serverless` is the gate of the serverless protocol.
    """

    def __init__(
        self,
        caches: Caches,
        client: Writer,
        *,
        pace: CensusPace,
        nodes: NodeReconciler,
        pods: PodReconciler,
        recorder: Recorder,
        serverless: bool,
        now: Callable[[], datetime],
    ) -> None:
        self._caches = caches
        self._client = client
        self._pace = pace
        self._nodes = nodes
        self._pods = pods
        self._recorder = recorder
        self._serverless = serverless
        self._now = now
        self._pruned: frozenset[str] = frozenset()
        self._pruned_at_watch = 0
        self._warned: dict[NamespacedName, frozenset[tuple[str, str]]] = {}
        self._deleting_since: dict[NamespacedName, float] = {}

    async def reconcile(self, key: NamespacedName) -> Result | None:
        self._pace.started(key)
        self._refresh_cycles(key)
        marker = self._caches.markers.get(key)
        compiled = self._caches.matching.markers.get(key)
        if marker is None or compiled is None:
            self._pace.forget(key)
            self._warned.pop(key, None)
            self._deleting_since.pop(key, None)
            return None
        if marker.deleting != compiled.deleting:
            return Result(CATCH_UP_SECONDS)
        if marker.deleting:
            return await self._finish(marker, compiled)
        try:
            held = await self._held(marker)
        except KubeError:
            # A stale webhook may refuse the finalizer; the status is still written.
            await self._report(marker, compiled)
            raise
        if held is None:
            return Result(CATCH_UP_SECONDS)
        await self._report(held, compiled)
        return Result(PRUNED_LOOK_SECONDS) if self._pruned else None

    def _refresh_cycles(self, key: NamespacedName) -> None:
        """Enqueues markers whose cycles changed; requeues this one if the pause is not over."""
        time = asyncio.get_running_loop().time
        changed, again_seconds = self._caches.cycles.refresh(key.namespace, time)
        for each in changed:
            if each != key:
                self._pace.request(each)
        if again_seconds:
            self._pace.request(key, delay_seconds=again_seconds)

    async def _held(self, marker: PodProbeMarker) -> PodProbeMarker | None:
        """Adds our finalizer if it is missing; returns the marker, or None after a conflict."""
        finalizers = marker.metadata.finalizers or ()
        if MARKER_FINALIZER in finalizers:
            return marker
        return await self._write_finalizers(marker, (*finalizers, MARKER_FINALIZER))

    async def _report(self, marker: PodProbeMarker, compiled: CompiledMarker) -> None:
        """Takes the census if it is due, and writes the status."""
        if not self._pace.is_due(marker.key):
            self._pace.request(marker.key)
            return
        wanted = await self._census(marker, compiled)
        await self._write_status(marker, wanted)
        self._warn(marker, wanted)

    async def _census(
        self, marker: PodProbeMarker, compiled: CompiledMarker
    ) -> PodProbeMarkerStatus:
        """Counts in slices, as a marker may match all pods of a large cluster, and results must not wait.

        A change during the count may be missed; it has requested another census.
        """
        pods = self._caches.matching.pods_of(compiled)
        tally = Tally(compiled)
        together: set[tuple[CompiledMarker, ...]] = {(compiled,)}
        stale: dict[str, bool] = {}
        seconds = 0.0
        time = asyncio.get_running_loop().time
        for first in range(0, len(pods), CENSUS_SLICE):
            started_at = time()
            for pod in pods[first : first + CENSUS_SLICE]:
                markers = self._caches.matching.markers_of(pod)
                together.add(markers)
                sighting = self._sighting(compiled, pod, markers, stale)
                if sighting is not None:
                    tally.add(sighting)
            seconds += time() - started_at
            await asyncio.sleep(0)
        self._pace.finished(marker.key, seconds)
        conflicts = {
            conflict
            for markers in together
            for conflict in conflicts_of(compiled, claims_of(markers))
        }
        obstacles = {
            node: outcome.error for node, outcome in self._nodes.outcomes.items() if outcome.error
        }
        return census(
            marker,
            tally,
            conflicts,
            obstacles,
            self._now(),
            refusals=self._refusals(compiled, pods),
            cycle=self._caches.cycles.through(marker.key),
        )

    def _refusals(self, marker: CompiledMarker, pods: Iterable[Pod]) -> dict[NamespacedName, str]:
        """The pods on which the API server refuses marks of `marker`, and why."""
        name, why_refused = marker.key.name, self._pods.why_refused
        return {each.key: why for each in pods if (why := why_refused(each.key, name))}

    def _sighting(
        self,
        compiled: CompiledMarker,
        pod: Pod,
        markers: tuple[CompiledMarker, ...],
        stale: dict[str, bool],
    ) -> Sighting | None:
        """The observation of a pod; None if it is not probed or has no Node. `stale` caches staleness by node."""
        caches = self._caches
        node = caches.node(pod.node) if is_probed(pod) else None
        if node is None:
            return None
        if is_virtual(node):
            claims = claims_of(markers)
            states: States = states_of(pod, claims) if self._serverless else {}
            return Sighting(pod, None, states, planned=False)
        limit = left_out_of(pod, markers, self._nodes.no_room(pod)).get(compiled.key.name)
        if limit is not None:
            return Sighting(pod, None, {}, left_out=limit.reason)
        if pod.node not in stale:
            stale[pod.node] = bool(caches.stale_message(pod.node))
        return Sighting(
            pod,
            caches.view(pod.node).entries.get(pod.uid),
            {} if stale[pod.node] else caches.states_of(pod),
            planned=pod.node not in self._nodes.rewritten,
            stale=stale[pod.node],
        )

    async def _write_status(self, marker: PodProbeMarker, wanted: PodProbeMarkerStatus) -> None:
        if self._pruned_at_watch != self._caches.marker_watches:
            self._pruned = frozenset()  # another definition may keep more
        if not differs(wanted, marker.status, self._pruned):
            return
        try:
            answer = await self._client.patch(
                MARKERS,
                marker.key,
                encode_status(wanted),
                patch_type=PatchType.MERGE,
                subresource="status",
            )
        except NotFound:
            return
        self._caches.markers.wrote(answer)
        self._pruned = pruned_fields(wanted, answer.status)
        self._pruned_at_watch = self._caches.marker_watches

    def _warn(self, marker: PodProbeMarker, status: PodProbeMarkerStatus) -> None:
        """Records a Warning per conflict and invalid spec, unless the status or an earlier event reported it."""
        news = _warnings(status)
        said = _warnings(marker.status) | self._warned.pop(marker.key, frozenset())
        fresh = news - said - {each for each in news if _is_known(each[0], said)}
        if news:
            self._warned[marker.key] = news
        about = ObjectReference(*marker.key, marker.uid, MARKERS.api_version, MARKERS.kind)
        for reason, message in sorted(fresh):
            self._recorder.event(about, "Warning", reason, message)

    async def _finish(self, marker: PodProbeMarker, compiled: CompiledMarker) -> Result | None:
        """Removes the finalizer once no entry or mark is left; until then the status reports what is left.

        If finalizers of others keep the marker, its status reports that nothing is left.
        """
        finalizers = marker.metadata.finalizers or ()
        holding = self._caches.nodes_holding(marker.key)
        marked = None if holding else self._still_marked(compiled)
        if not holding and marked is None:
            rest = tuple(each for each in finalizers if each != MARKER_FINALIZER)
            if rest == finalizers:
                await self._report_end(marker, compiled)
                return None
            changed = await self._write_finalizers(marker, rest)
            return Result(CATCH_UP_SECONDS) if changed is None or rest else None
        now = asyncio.get_running_loop().time()
        since = self._deleting_since.setdefault(marker.key, now)
        if now - since >= DELETION_CHECK_SECONDS and self._pace.is_due(marker.key):
            self._pace.finished(marker.key, 0.0)
            await self._write_status(marker, self._waiting(marker, compiled, marked))
        return Result(DELETION_CHECK_SECONDS)

    async def _report_end(self, marker: PodProbeMarker, compiled: CompiledMarker) -> None:
        """Writes the final status, rate limited: holders of other finalizers may edit the marker often."""
        if not self._pace.is_due(marker.key):
            self._pace.request(marker.key)
            return
        self._pace.finished(marker.key, 0.0)
        await self._write_status(marker, counting.ended(marker, compiled.generation, self._now()))

    def _still_marked(self, compiled: CompiledMarker) -> NamespacedName | None:
        """Returns a pod that still carries a mark of the marker, or None."""
        for pod in self._caches.marked.of_marker(compiled):
            if has_residue(pod, compiled, claims_of(self._caches.matching.markers_of(pod))):
                return pod.key
        return None

    def _waiting(
        self, marker: PodProbeMarker, compiled: CompiledMarker, marked: NamespacedName | None
    ) -> PodProbeMarkerStatus:
        """The status of a marker whose deletion waits."""
        holding = sorted(self._caches.nodes_holding(marker.key))
        hold = "NodePodProbe still holds" if len(holding) == 1 else "NodePodProbes still hold"
        message = (
            f"Pod {marked} still carries marks of this marker."
            if marked is not None
            else f"{len(holding)} {hold} entries of this marker: {counting.listed(holding)}."
        )
        news = {counting.SYNCED: Condition(counting.SYNCED, "False", "Deleting", message)}
        refusals = self._refusals(compiled, self._caches.marked.of_marker(compiled))
        if refusals:
            news[counting.DEGRADED] = counting.not_marked(refusals)
        current = marker.status or PodProbeMarkerStatus()
        previous = {each.type: each for each in current.conditions or ()}
        stamped = {
            type: counting.stamped(each, previous.get(type), compiled.generation, self._now())
            for type, each in news.items()
        }
        return msgspec.structs.replace(
            current,
            observed_generation=compiled.generation,
            nodes_behind=len(holding),
            conditions=tuple((previous | stamped).values()),
        )

    async def _write_finalizers(
        self, marker: PodProbeMarker, finalizers: tuple[str, ...]
    ) -> PodProbeMarker | None:
        """Writes the finalizers; returns None on a conflict, as others write finalizers too."""
        body = {"metadata": {"resourceVersion": marker.resource_version, "finalizers": finalizers}}
        try:
            changed = await self._client.patch(
                MARKERS, marker.key, msgspec.json.encode(body), patch_type=PatchType.MERGE
            )
        except (Conflict, NotFound):
            self._caches.markers.forget(marker.key)
            return None
        self._caches.markers.wrote(changed)
        return changed


def _warnings(status: PodProbeMarkerStatus | None) -> frozenset[tuple[str, str]]:
    """Reasons and messages of the conditions that are worth a Warning."""
    conditions = (status.conditions or ()) if status is not None else ()
    return frozenset(
        (each.reason, each.message)
        for each in conditions
        if each.status == "True" and each.reason in counting.WARNED_OF | counting.WARNED_OF_ONCE
    )


def _is_known(reason: str, said: Iterable[tuple[str, str]]) -> bool:
    """Whether the reason was reported before and its message does not matter."""
    return reason in counting.WARNED_OF_ONCE and any(each == reason for each, _ in said)
