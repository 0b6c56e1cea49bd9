"""Reconciles the status and the finalizer of a marker. Key: namespace/name.

The first reconcile adds the finalizer; the planning of entries does not wait for it. If a marker is deleted without
the finalizer, its entries and marks are found from the nodes and pods. The finalizer is removed when no NodePodProbe
holds an entry and no pod carries a mark. All of that is read from synced caches, so a failed read cannot remove it.

Source: Kruise pkg/controller/podprobemarker (Reconcile, handlerPodProbeMarkerFinalizer).
Differs: deletion waits for all entries and marks that exist, not for the pods that match at that moment.
"""

import asyncio
from collections.abc import Mapping
from itertools import chain
from typing import Final

import msgspec

from kruise_probe.api.errors import Conflict, KubeError, NotFound
from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.names import MARKER_FINALIZER, REASON_DAEMON_STALE
from kruise_probe.api.pods import Pod
from kruise_probe.api.resources import MARKERS
from kruise_probe.api.times import loop_time
from kruise_probe.api.v1alpha1 import PodProbeMarker, PodProbeMarkerStatus
from kruise_probe.client.request import PatchType
from kruise_probe.client.rest import RestClient
from kruise_probe.controllers.causes import NO_DAEMON
from kruise_probe.controllers.claims import (
    claims_of,
    conflicts_of,
    has_stale_mark,
    unowned_marks,
)
from kruise_probe.controllers.compiled import CompiledMarker
from kruise_probe.controllers.conditions import (
    TWO_DAEMONS,
    WARNING_REASONS,
    WRITES_LIMITED,
    Facts,
    deleted_status,
    differs,
    encode_status,
    marker_status,
)
from kruise_probe.controllers.counts import (
    StatusCounts,
    invalid_values,
    shown_states,
    verdicts_on,
)
from kruise_probe.controllers.daemon_leases import Verdict
from kruise_probe.controllers.limits import (
    ANNOTATIONS_FULL,
    has_no_place_in_annotations,
    is_probed,
    is_windows,
)
from kruise_probe.controllers.marking import states_of_conditions
from kruise_probe.controllers.readiness import Stopwatches
from kruise_probe.controllers.state import PodResults, State
from kruise_probe.controllers.writes import MARKS_INTERVAL_SECONDS, WriteCause
from kruise_probe.manager.recorder import EventRecorder, ObjectReference
from kruise_probe.workqueue.controller import Result

CATCH_UP_SECONDS: Final = 0.2
"""Requeue delay while the cache is behind the API server."""

DELETION_CHECK_SECONDS: Final = 5.0
"""Requeue interval of a marker whose deletion waits; after this time its status reports why."""

SLICE_SECONDS: Final = 0.004
"""How long pods are counted before yielding to the event loop, some 256 pods."""

PRUNED_CHECK_SECONDS: Final = 30.0
"""Requeue interval while the CRD prunes status fields, in case a new CRD keeps them."""


class MarkerReconciler:
    """Writes a marker's finalizer, and its status at most once a second and only if it differs."""

    def __init__(self, state: State, client: RestClient, recorder: EventRecorder) -> None:
        self._state, self._queues = state, state.queues
        self._client, self._recorder = client, recorder
        self._pruned: dict[NamespacedName, tuple[PodProbeMarkerStatus, PodProbeMarkerStatus]] = {}
        """The statuses as sent and as stored, if the installed CRD prunes fields. Dropped when the CRD may have changed."""
        self._pruned_at_watch = 0
        self._warned: dict[NamespacedName, set[_Warned]] = {}
        self._deleting_since: dict[NamespacedName, float] = {}
        self._lasting = Stopwatches()

    async def reconcile(self, key: NamespacedName) -> Result | None:
        marker = self._state.markers.get(key)
        compiled = self._state.matching.markers.get(key)
        if marker is None or compiled is None:
            self._queues.forget_status(key)
            self._pruned.pop(key, None)
            self._warned.pop(key, None)
            self._deleting_since.pop(key, None)
            self._lasting.forget(key)
            self._state.foreign.forget(key)
            return None
        if marker.deleting:
            return await self._finalize(marker, compiled)
        finalizers = marker.metadata.finalizers
        if MARKER_FINALIZER not in finalizers:
            try:
                changed = await self._write_finalizers(marker, (*finalizers, MARKER_FINALIZER))
            except KubeError:
                # A stale webhook may refuse the finalizer; the status is still written.
                await self._update_status(marker, compiled)
                raise
            if changed is None:
                return Result(CATCH_UP_SECONDS, finished=False)
            marker = changed
        return await self._update_status(marker, compiled)

    async def _update_status(
        self, marker: PodProbeMarker, compiled: CompiledMarker
    ) -> Result | None:
        """Compute and write the status if the pause is over."""
        pause = self._queues.status_pause_left(marker.key)
        if pause:
            return Result(pause, finished=False)
        wanted = await self._compute_status(marker, compiled)
        await self._write_status(marker, wanted)
        self._warn(marker, wanted)
        checks = self._lasting.seconds_until_checks(marker.key)
        if any(condition.reason == WRITES_LIMITED for condition in wanted.conditions):
            checks.append(MARKS_INTERVAL_SECONDS)
        foreign_left = self._state.foreign.seconds_left(marker.key, loop_time())
        if foreign_left is not None:
            checks.append(foreign_left)
        if marker.key in self._pruned:
            checks.append(PRUNED_CHECK_SECONDS)
        return Result(min(checks)) if checks else None

    async def _compute_status(
        self, marker: PodProbeMarker, compiled: CompiledMarker
    ) -> PodProbeMarkerStatus:
        """Count in slices, as a marker may match all pods of a large cluster, and results must not wait.

        A change during the count may be missed; it has enqueued another update.
        """
        pods = self._state.matching.pods_of(compiled)
        counts = StatusCounts(compiled)
        marker_sets: set[tuple[CompiledMarker, ...]] = {(compiled,)}
        """The sets of markers that select pods of this marker."""
        seconds = 0.0
        time = asyncio.get_running_loop().time
        started_at = time()
        for pod in pods:
            markers = self._state.matching.markers_of(pod)
            marker_sets.add(markers)
            if is_probed(pod) and self._state.node(pod.node) is not None:
                self._count(counts, pod, markers)
            elif pod.active and not pod.mirror:
                counts.pending += 1
            if time() - started_at >= SLICE_SECONDS:
                seconds += time() - started_at
                await asyncio.sleep(0)
                started_at = time()
        seconds += time() - started_at
        self._queues.record_status_update(marker.key, seconds)
        conflicts = {
            conflict
            for markers in marker_sets
            for conflict in conflicts_of(compiled, claims_of(markers))
        }
        return marker_status(
            marker,
            conflicts=conflicts,
            node_errors={
                name: spec.error for name, spec in self._state.specs.items() if spec.error
            },
            facts=self._facts(counts, self._state.refusals_of(marker.key.name, pods)),
            lasting=self._lasting.observe(marker.key, counts),
            now=self._state.now(),
        )

    def _facts(self, counts: StatusCounts, refusals: Mapping[NamespacedName, str]) -> Facts:
        """The counts with what is known of the nodes that they name."""
        leases = self._state.leases
        holders = {node: leases.two_holders(node) for node in counts.of_daemon(TWO_DAEMONS)}
        windows: set[str] = set()
        for name in counts.of_daemon(NO_DAEMON):
            node = self._state.node(name)
            if node is not None and is_windows(node):
                windows.add(name)
        foreign = self._state.foreign.of(counts.compiled.key, loop_time())
        return Facts(counts, refusals, holders, windows, foreign)

    def _count(self, counts: StatusCounts, pod: Pod, markers: tuple[CompiledMarker, ...]) -> None:
        state, compiled, claims = self._state, counts.compiled, claims_of(markers)
        results = state.results_of(pod, markers)
        limit = results.left_out.get(compiled.key.name)
        if (
            results.by_provider
            and state.options.serverless
            and has_no_place_in_annotations(pod, compiled)
        ):
            limit = ANNOTATIONS_FULL
        paused = not results.by_provider and (compiled.paused or pod.paused)
        if limit is not None and not paused:
            counts.add_left_out(pod, limit.reason)
            return
        is_reported_stale = REASON_DAEMON_STALE in [each.reason for each in pod.conditions]
        states = shown_states(compiled, pod, results.states, results.why_stale)
        if paused:  # The conditions stay as they are.
            states = states_of_conditions(pod, claims)
        if not results.by_provider and not state.spec(pod.node).is_altered:
            entry = state.node_index.view(pod.node).entries.get(pod.uid)
            counts.check_entry(pod, entry, paused=paused)
        counts.paused += paused
        is_absent = self._has_no_daemon(pod, results)
        if results.why_stale if not paused else is_reported_stale:
            counts.daemons[REASON_DAEMON_STALE, pod.node] += 1
        elif is_absent and not paused:
            counts.daemons[NO_DAEMON, pod.node] += 1
        elif state.leases.two_holders(pod.node):
            counts.daemons[TWO_DAEMONS, pod.node] += 1
        counts.add_verdicts(verdicts_on(compiled, pod, results.states, is_absent=is_absent))
        probes, now = len(claims.claims), asyncio.get_running_loop().time()
        wait = state.limits.wait_seconds(pod.key, WriteCause.MARKS, probes=probes, now=now)
        counts.writes_limited += wait > 0
        invalid = () if paused else invalid_values(compiled, pod, claims, states)
        counts.add(pod, states, invalid)

    def _has_no_daemon(self, pod: Pod, results: PodResults) -> bool:
        """Whether the pod's node never showed a daemon. A virtual node has none; its provider reports with the feature gate."""
        if results.by_provider:
            return not self._state.options.serverless
        return not results.states and self._state.leases.verdict(pod.node) is Verdict.ABSENT

    async def _write_status(self, marker: PodProbeMarker, wanted: PodProbeMarkerStatus) -> None:
        key, watches = marker.key, self._state.informers.markers.watches
        if self._pruned_at_watch != watches:
            self._pruned, self._pruned_at_watch = {}, watches  # another definition may keep more
        sent, stored = self._pruned.get(key, (wanted, wanted))
        if not differs(wanted, sent) and not differs(stored, marker.status):
            return
        try:
            response = await self._client.patch(
                MARKERS,
                key,
                encode_status(wanted),
                patch_type=PatchType.MERGE,
                subresource="status",
            )
        except NotFound:
            return
        self._state.informers.markers.record_write(response)
        self._pruned.pop(key, None)
        if differs(wanted, response.status):
            self._pruned[key] = wanted, response.status or PodProbeMarkerStatus()

    def _warn(self, marker: PodProbeMarker, status: PodProbeMarkerStatus) -> None:
        """Record a Warning for each reason and generation, unless the status or an earlier event reported it."""
        current = _warnings(status)
        reported = _warnings(marker.status).keys() | self._warned.get(marker.key, set())
        self._warned[marker.key] = set(current)
        involved = ObjectReference(*marker.key, marker.uid, MARKERS.api_version, MARKERS.kind)
        for reason, generation in sorted(current.keys() - reported):
            self._recorder.event(involved, "Warning", reason, current[reason, generation])

    async def _finalize(self, marker: PodProbeMarker, compiled: CompiledMarker) -> Result | None:
        """Remove the finalizer once no entry or mark is left; until then the status reports what is left.

        If finalizers of others keep the marker, its status reports that nothing is left.
        """
        finalizers = marker.metadata.finalizers
        holding = self._state.node_index.nodes_holding(marker.key)
        pod = None if holding else self._pod_with_stale_mark(compiled)
        is_clean = not holding and pod is None
        now = asyncio.get_running_loop().time()
        since = self._deleting_since.setdefault(marker.key, now)
        if is_clean and any(
            key.namespace == marker.key.namespace and sent_at <= since
            for key, sent_at in self._state.writing.items()
        ):
            return Result(CATCH_UP_SECONDS, finished=False)
        if is_clean and MARKER_FINALIZER in finalizers:
            rest = tuple(each for each in finalizers if each != MARKER_FINALIZER)
            changed = await self._write_finalizers(marker, rest)
            return Result(CATCH_UP_SECONDS, finished=False) if changed is None or rest else None
        is_late = is_clean or now - since >= DELETION_CHECK_SECONDS
        pause = self._queues.status_pause_left(marker.key) if is_late else 0.0
        if is_late and not pause:
            self._queues.record_status_update(marker.key, 0.0)
            marked = self._state.marked.of_marker(compiled)
            status = deleted_status(
                marker,
                compiled.generation,
                nodes=sorted(holding),
                pod=pod,
                refusals=self._state.refusals_of(marker.key.name, marked),
                now=self._state.now(),
            )
            await self._write_status(marker, status)
        return Result(pause or DELETION_CHECK_SECONDS, finished=False)

    def _pod_with_stale_mark(self, compiled: CompiledMarker) -> NamespacedName | None:
        """Return a pod that still carries a mark of the marker, or None."""
        unowned = (
            pod
            for pod in self._state.matching.pods_of(compiled)
            if any(unowned_marks(pod, compiled))
        )
        for pod in chain(self._state.marked.of_marker(compiled), unowned):
            if has_stale_mark(pod, compiled, claims_of(self._state.matching.markers_of(pod))):
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
        self._state.informers.markers.record_write(changed)
        return changed


_Warned = tuple[str, int]
"""The reason of a condition and the generation of the marker."""


def _warnings(status: PodProbeMarkerStatus | None) -> dict[_Warned, str]:
    """The messages of the conditions that are worth a Warning."""
    return {
        (condition.reason, condition.observed_generation or 0): condition.message
        for condition in (status and status.conditions) or ()
        if condition.status == "True" and condition.reason in WARNING_REASONS
    }
