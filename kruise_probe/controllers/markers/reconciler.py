"""Reconciles the status and the finalizer of a marker. Key: namespace/name.

The first reconcile adds the finalizer; the planning of entries does not wait for it. If a marker is deleted without
the finalizer, its entries and marks are found from the nodes and pods. The finalizer is removed when no NodePodProbe
holds an entry and no pod carries a mark. All of that is read from synced caches, so a failed read cannot remove it.

Source: Kruise pkg/controller/podprobemarker (Reconcile, handlerPodProbeMarkerFinalizer).
Differs: deletion waits for all entries and marks that exist, not for the pods that match at that moment.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from itertools import chain
from typing import Final

import msgspec

from kruise_probe.api.errors import Conflict, KubeError, NotFound
from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.names import MARKER_FINALIZER, REASON_ANNOTATIONS_FULL, REASON_DAEMON_STALE
from kruise_probe.api.pods import Pod
from kruise_probe.api.resources import MARKERS
from kruise_probe.api.v1alpha1 import PodProbeMarker, PodProbeMarkerStatus
from kruise_probe.client.event_series import ObjectReference
from kruise_probe.client.request import PatchType
from kruise_probe.controllers.caches import Caches
from kruise_probe.controllers.compiled import CompiledMarker
from kruise_probe.controllers.daemon_leases import Verdict
from kruise_probe.controllers.limits import left_out_of
from kruise_probe.controllers.markers.conditions import (
    WARNING_REASONS,
    WARNING_REASONS_ONCE,
    WRITES_LIMITED,
)
from kruise_probe.controllers.markers.counts import PodObservation, StatusCounts
from kruise_probe.controllers.markers.status import (
    deleted_status,
    differs,
    encode_status,
    marker_status,
    pruned_fields,
    waiting_status,
)
from kruise_probe.controllers.nodes.plan import is_probed
from kruise_probe.controllers.pods.claims import (
    claims_of,
    conflicts_of,
    has_stale_mark,
    has_unowned_mark,
)
from kruise_probe.controllers.pods.marking import States
from kruise_probe.controllers.pods.values import InvalidValue, invalid_values
from kruise_probe.controllers.pods.write_limits import MARKS_INTERVAL_SECONDS, WriteLimits
from kruise_probe.controllers.queues import Queues
from kruise_probe.controllers.serverless import (
    has_no_place_in_annotations,
    is_virtual,
    states_of_conditions,
)
from kruise_probe.controllers.writes import CATCH_UP_SECONDS, Recorder, Writer, WriteResults
from kruise_probe.workqueue.controller import Result

DELETION_CHECK_SECONDS: Final = 5.0
"""Requeue interval of a marker whose deletion waits; after this time its status reports why."""

SLICE_SECONDS: Final = 0.004
"""How long pods are counted before yielding to the event loop, some 256 pods."""

PRUNED_CHECK_SECONDS: Final = 30.0
"""Requeue interval while the CRD prunes status fields, in case a new CRD keeps them."""


class MarkerReconciler:
    """Writes a marker's finalizer, and its status at most once a second and only if it differs.

    `results` are those of the other reconcilers. `serverless` is the gate of the serverless protocol.
    """

    def __init__(
        self,
        caches: Caches,
        client: Writer,
        queues: Queues,
        *,
        limits: WriteLimits,
        results: WriteResults,
        recorder: Recorder,
        serverless: bool,
        now: Callable[[], datetime],
    ) -> None:
        self._caches = caches
        self._client = client
        self._queues = queues
        self._throttle = queues.status_throttle
        self._limits = limits
        self._results = results
        self._recorder = recorder
        self._serverless = serverless
        self._now = now
        self._pruned: frozenset[str] = frozenset()
        self._pruned_at_watch = 0
        self._warned: dict[NamespacedName, frozenset[tuple[str, str]]] = {}
        self._deleting_since: dict[NamespacedName, float] = {}

    async def reconcile(self, key: NamespacedName) -> Result | None:
        self._throttle.started(key)
        marker = self._caches.markers.get(key)
        compiled = self._caches.matching.markers.get(key)
        if marker is None or compiled is None:
            self._throttle.forget(key)
            self._warned.pop(key, None)
            self._deleting_since.pop(key, None)
            return None
        if marker.deleting != compiled.deleting:
            return Result(CATCH_UP_SECONDS, finished=False)
        if marker.deleting:
            return await self._finalize(marker, compiled)
        try:
            kept = await self._ensure_finalizer(marker)
        except KubeError:
            # A stale webhook may refuse the finalizer; the status is still written.
            await self._update_status(marker, compiled)
            raise
        if kept is None:
            return Result(CATCH_UP_SECONDS, finished=False)
        return await self._update_status(kept, compiled)

    async def _ensure_finalizer(self, marker: PodProbeMarker) -> PodProbeMarker | None:
        """Add our finalizer if it is missing; return the marker, or None after a conflict."""
        finalizers = marker.metadata.finalizers or ()
        if MARKER_FINALIZER in finalizers:
            return marker
        return await self._write_finalizers(marker, (*finalizers, MARKER_FINALIZER))

    async def _update_status(
        self, marker: PodProbeMarker, compiled: CompiledMarker
    ) -> Result | None:
        """Compute and write the status if the pause is over."""
        pause = self._throttle.pause_left(marker.key)
        if pause:
            return Result(pause, finished=False)
        wanted = await self._compute_status(marker, compiled)
        await self._write_status(marker, wanted)
        self._warn(marker, wanted)
        if any(each.reason == WRITES_LIMITED for each in wanted.conditions or ()):
            return Result(MARKS_INTERVAL_SECONDS)
        return Result(PRUNED_CHECK_SECONDS) if self._pruned else None

    async def _compute_status(
        self, marker: PodProbeMarker, compiled: CompiledMarker
    ) -> PodProbeMarkerStatus:
        """Count in slices, as a marker may match all pods of a large cluster, and results must not wait.

        A change during the count may be missed; it has enqueued another update.
        """
        pods = self._caches.matching.pods_of(compiled)
        counts = StatusCounts(compiled)
        marker_sets: set[tuple[CompiledMarker, ...]] = {(compiled,)}
        """The sets of markers that select pods of this marker."""
        seconds = 0.0
        time = asyncio.get_running_loop().time
        started_at = time()
        for pod in pods:
            markers = self._caches.matching.markers_of(pod)
            marker_sets.add(markers)
            observed = self._observe(compiled, pod, markers)
            if observed is not None:
                counts.add(observed)
            if time() - started_at >= SLICE_SECONDS:
                seconds += time() - started_at
                await asyncio.sleep(0)
                started_at = time()
        seconds += time() - started_at
        self._throttle.finished(marker.key, seconds)
        conflicts = {
            conflict
            for markers in marker_sets
            for conflict in conflicts_of(compiled, claims_of(markers))
        }
        return marker_status(
            marker,
            counts,
            conflicts=conflicts,
            node_errors=self._results.node_errors(),
            refusals=self._results.refusals(pods, marker.key.name),
            now=self._now(),
        )

    def _observe(
        self, compiled: CompiledMarker, pod: Pod, markers: tuple[CompiledMarker, ...]
    ) -> PodObservation | None:
        """Return the observation of a pod; None if it is not probed or has no Node."""
        caches, results = self._caches, self._results
        node = caches.node(pod.node) if is_probed(pod) else None
        if node is None:
            return None
        if is_virtual(node):
            if self._serverless and has_no_place_in_annotations(pod, compiled):
                return PodObservation(pod, None, {}, left_out=REASON_ANNOTATIONS_FULL)
            states: States = (
                states_of_conditions(pod, claims_of(markers)) if self._serverless else {}
            )
            invalid = _invalid_values(compiled, pod, markers, states)
            return PodObservation(pod, None, states, checks_entry=False, invalid_values=invalid)
        if compiled.paused or pod.paused:
            return PodObservation(
                pod,
                caches.node_index.view(pod.node).entries.get(pod.uid),
                states_of_conditions(pod, claims_of(markers)),
                paused=True,
            )
        limit = left_out_of(pod, markers, results.no_room(pod)).get(compiled.key.name)
        if limit is not None:
            return PodObservation(pod, None, {}, left_out=limit.reason)
        verdict = caches.leases.verdict(pod.node)
        stale = verdict is Verdict.STALE or (
            # As on the pod: an earlier manager found it stale.
            verdict is Verdict.UNDECIDED
            and any(each.reason == REASON_DAEMON_STALE for each in pod.conditions)
        )
        checks_entry = results.altered(pod.node) is None
        compared = (compiled,) if checks_entry else ()
        states = {} if stale else caches.node_index.states_of(pod, compared)
        return PodObservation(
            pod,
            caches.node_index.view(pod.node).entries.get(pod.uid),
            states,
            checks_entry=checks_entry,
            stale=stale,
            writes_limited=self._limits.delays_marks(
                pod.key,
                probes=len(claims_of(markers).claims),
                now=asyncio.get_running_loop().time(),
            ),
            invalid_values=_invalid_values(compiled, pod, markers, states),
        )

    async def _write_status(self, marker: PodProbeMarker, wanted: PodProbeMarkerStatus) -> None:
        if self._pruned_at_watch != self._caches.marker_watches:
            self._pruned = frozenset()  # another definition may keep more
        if not differs(wanted, marker.status, self._pruned):
            return
        try:
            response = await self._client.patch(
                MARKERS,
                marker.key,
                encode_status(wanted),
                patch_type=PatchType.MERGE,
                subresource="status",
            )
        except NotFound:
            return
        self._caches.markers.record_write(response)
        self._pruned = pruned_fields(wanted, response.status)
        self._pruned_at_watch = self._caches.marker_watches

    def _warn(self, marker: PodProbeMarker, status: PodProbeMarkerStatus) -> None:
        """Record a Warning per conflict and invalid spec, unless the status or an earlier event reported it."""
        current = _warnings(status)
        reported = _warnings(marker.status) | self._warned.pop(marker.key, frozenset())
        reported |= {each for each in current if _is_reported_once(each[0], reported)}
        self._warned[marker.key] = current
        involved = ObjectReference(*marker.key, marker.uid, MARKERS.api_version, MARKERS.kind)
        for reason, message in sorted(current - reported):
            self._recorder.event(involved, "Warning", reason, message)

    async def _finalize(self, marker: PodProbeMarker, compiled: CompiledMarker) -> Result | None:
        """Remove the finalizer once no entry or mark is left; until then the status reports what is left.

        If finalizers of others keep the marker, its status reports that nothing is left.
        """
        finalizers = marker.metadata.finalizers or ()
        holding = self._caches.node_index.nodes_holding(marker.key)
        pod = None if holding else self._pod_with_stale_mark(compiled)
        if not holding and pod is None:
            rest = tuple(each for each in finalizers if each != MARKER_FINALIZER)
            if rest == finalizers:
                return await self._update_deleted_status(marker, compiled)
            changed = await self._write_finalizers(marker, rest)
            return Result(CATCH_UP_SECONDS, finished=False) if changed is None or rest else None
        now = asyncio.get_running_loop().time()
        since = self._deleting_since.setdefault(marker.key, now)
        if now - since >= DELETION_CHECK_SECONDS and not self._throttle.pause_left(marker.key):
            self._throttle.finished(marker.key, 0.0)
            status = waiting_status(
                marker,
                compiled.generation,
                nodes=sorted(holding),
                pod=pod,
                refusals=self._results.refusals(
                    self._caches.marked.of_marker(compiled), marker.key.name
                ),
                now=self._now(),
            )
            await self._write_status(marker, status)
        return Result(DELETION_CHECK_SECONDS, finished=False)

    async def _update_deleted_status(
        self, marker: PodProbeMarker, compiled: CompiledMarker
    ) -> Result | None:
        """Write the final status, rate limited: holders of other finalizers may edit the marker often."""
        pause = self._throttle.pause_left(marker.key)
        if pause:
            return Result(pause, finished=False)
        self._throttle.finished(marker.key, 0.0)
        await self._write_status(marker, deleted_status(marker, compiled.generation, self._now()))
        return None

    def _pod_with_stale_mark(self, compiled: CompiledMarker) -> NamespacedName | None:
        """Return a pod that still carries a mark of the marker, or None."""
        unowned = (
            pod
            for pod in self._caches.matching.pods_of(compiled)
            if has_unowned_mark(pod, compiled)
        )
        for pod in chain(self._caches.marked.of_marker(compiled), unowned):
            if has_stale_mark(pod, compiled, claims_of(self._caches.matching.markers_of(pod))):
                return pod.key
        return None

    async def _write_finalizers(
        self, marker: PodProbeMarker, finalizers: tuple[str, ...]
    ) -> PodProbeMarker | None:
        """Write the finalizers; return None on a conflict, as others write finalizers too."""
        body = {"metadata": {"resourceVersion": marker.resource_version, "finalizers": finalizers}}
        try:
            changed = await self._client.patch(
                MARKERS, marker.key, msgspec.json.encode(body), patch_type=PatchType.MERGE
            )
        except (Conflict, NotFound):
            return None
        self._caches.markers.record_write(changed)
        return changed


def _invalid_values(
    compiled: CompiledMarker, pod: Pod, markers: tuple[CompiledMarker, ...], states: States
) -> Sequence[InvalidValue]:
    if not compiled.from_message or not states:
        return ()
    return invalid_values(compiled, pod, claims_of(markers), states)


def _warnings(status: PodProbeMarkerStatus | None) -> frozenset[tuple[str, str]]:
    """Reasons and messages of the conditions that are worth a Warning."""
    conditions = (status.conditions or ()) if status is not None else ()
    return frozenset(
        (each.reason, each.message)
        for each in conditions
        if each.status == "True" and each.reason in WARNING_REASONS | WARNING_REASONS_ONCE
    )


def _is_reported_once(reason: str, reported: Iterable[tuple[str, str]]) -> bool:
    """Whether the reason was reported before and its message does not matter."""
    return reason in WARNING_REASONS_ONCE and any(each == reason for each, _ in reported)
