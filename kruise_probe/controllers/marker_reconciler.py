"""Reconciles the status and the finalizer of a marker. Key: namespace/name.

The first reconcile adds the finalizer; the planning of entries does not wait for it. If a marker is deleted without
the finalizer, its entries and marks are found from the nodes and pods. The finalizer is removed when no NodePodProbe
holds an entry and no pod carries a mark. All of that is read from synced caches, so a failed read cannot remove it.

Source: Kruise pkg/controller/podprobemarker (Reconcile, handlerPodProbeMarkerFinalizer).
Differs: deletion waits for all entries and marks that exist, not for the pods that match at that moment.
"""

import asyncio
from typing import Final

import msgspec

from kruise_probe.api.errors import Conflict, KubeError, NotFound
from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.names import MARKER_FINALIZER
from kruise_probe.api.resources import MARKERS
from kruise_probe.api.times import loop_time
from kruise_probe.api.v1alpha1 import PodProbeMarker, PodProbeMarkerStatus
from kruise_probe.client.request import PatchType
from kruise_probe.client.rest import RestClient
from kruise_probe.controllers.causes import NO_DAEMON
from kruise_probe.controllers.claims import (
    StaleMarks,
    claims_of,
    conflicts_of,
    unowned_marks,
)
from kruise_probe.controllers.compiled import CompiledMarker
from kruise_probe.controllers.conditions import (
    TWO_DAEMONS,
    WARNING_REASONS,
    Facts,
    deleted_status,
    differs,
    encode_status,
    marker_status,
)
from kruise_probe.controllers.counts import StatusCounts
from kruise_probe.controllers.limits import TOO_MANY_MARKERS, is_probed, is_windows
from kruise_probe.controllers.matching import LabelSet
from kruise_probe.controllers.readiness import Stopwatches
from kruise_probe.controllers.state import State
from kruise_probe.runtime.recorder import EventRecorder, ObjectReference
from kruise_probe.workqueue.controller import Result
from kruise_probe.workqueue.slices import PODS_PER_STEP, Slices, Steps

CATCH_UP_SECONDS: Final = 0.2
"""Requeue delay while the cache is behind the API server."""

DELETION_CHECK_SECONDS: Final = 5.0
"""After this time the status of a marker whose deletion waits reports why."""

CHECK_SECONDS: Final = 30.0
"""Requeue interval of a marker with something that no event shows: the CRD prunes status fields, a deletion waits for long, or
pods change for which the marker is not considered."""

BEYOND_SECONDS: Final = 5.0
"""For how long the number of pods of a label set is kept."""


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
        self._probed: dict[LabelSet, int] = {}
        self._beyond: dict[NamespacedName, int] = {}
        """By marker, the pods for which it is not considered; their nodes count its probes as left out."""
        self._forget_probed_at = 0.0
        self._slices = Slices()

    async def reconcile(self, key: NamespacedName) -> Result | None:
        marker = self._state.markers.get(key)
        compiled = self._state.matching.markers.get(key)
        if marker is None or compiled is None:
            self._queues.forget_status(key)
            self._pruned.pop(key, None)
            self._warned.pop(key, None)
            self._deleting_since.pop(key, None)
            self._lasting.forget(key)
            self._beyond.pop(key, None)
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
        """Compute and write the status if the pause is over, and all pods have been counted since the last edit."""
        pause = self._queues.status_pause_left(marker.key)
        if pause:
            return Result(pause, finished=False)
        counts = self._state.tallies.of(compiled)
        if counts is None:
            return None  # enqueued when they have been counted
        self._queues.record_status_update(marker.key)
        beyond = self._pods_beyond(compiled)
        if beyond != self._beyond.get(marker.key, 0):
            self._beyond[marker.key] = beyond
            self._enqueue_nodes_beyond(compiled)
        wanted = self._status(marker, counts, beyond)
        await self._write_status(marker, wanted)
        self._warn(marker, wanted)
        checks = self._lasting.seconds_until_checks(marker.key)
        foreign_left = self._state.foreign.seconds_left(marker.key, loop_time())
        if foreign_left is not None:
            checks.append(foreign_left)
        if beyond or marker.key in self._pruned:
            checks.append(CHECK_SECONDS)
        return Result(min(checks)) if checks else None

    def _status(
        self, marker: PodProbeMarker, counts: StatusCounts, beyond: int
    ) -> PodProbeMarkerStatus:
        alone = claims_of((counts.compiled,))
        counts.add_left_out(beyond, TOO_MANY_MARKERS.reason)
        errors: dict[str, str] = {}
        for node in counts.nodes_behind:
            error = self._state.spec(node).error
            if error:
                errors[node] = error
        status = marker_status(
            marker,
            conflicts={*counts.conflicts, *conflicts_of(counts.compiled, alone)},
            node_errors=errors,
            facts=self._facts(counts),
            lasting=self._lasting.observe(marker.key, counts),
            now=self._state.now(),
        )
        counts.add_left_out(-beyond, TOO_MANY_MARKERS.reason)
        return status

    def _facts(self, counts: StatusCounts) -> Facts:
        """The counts with what is known of the nodes that they name."""
        leases = self._state.leases
        holders = {node: leases.two_holders(node) for node in counts.of_daemon(TWO_DAEMONS)}
        windows: set[str] = set()
        for name in counts.of_daemon(NO_DAEMON):
            node = self._state.node(name)
            if node is not None and is_windows(node):
                windows.add(name)
        foreign = self._state.foreign.of(counts.compiled.key, loop_time())
        return Facts(counts, counts.refusals, holders, windows, foreign)

    def _pods_beyond(self, marker: CompiledMarker) -> int:
        """The pods for which the marker is not considered, as too many older ones select them. No event of these pods enqueues it."""
        pods = 0
        for label_set in self._state.matching.label_sets_of(marker):
            if marker not in label_set.considered:
                pods += self._probed_in(label_set)
        return pods

    def _enqueue_nodes_beyond(self, marker: CompiledMarker) -> None:
        """Enqueue the nodes of these pods: their plans count what is left out."""
        for label_set in self._state.matching.label_sets_of(marker):
            if marker not in label_set.considered:
                for node in {pod.node for pod in label_set.pods.values()}:
                    self._queues.enqueue_node(node)

    def _probed_in(self, label_set: LabelSet) -> int:
        """The pods that can be probed, for some seconds as they were counted for another marker."""
        now = asyncio.get_running_loop().time()
        if now >= self._forget_probed_at:
            self._probed.clear()
            self._forget_probed_at = now + BEYOND_SECONDS
        pods = self._probed.get(label_set)
        if pods is None:
            pods = 0
            for pod in label_set.pods.values():
                pods += is_probed(pod) and self._state.node(pod.node) is not None
            self._probed[label_set] = pods
        return pods

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
        state, key = self._state, marker.key
        finalizers = marker.metadata.finalizers
        now = asyncio.get_running_loop().time()
        since = self._deleting_since.setdefault(key, now)
        holding = state.node_index.nodes_holding(key)
        pod: NamespacedName | None = None
        if not holding and state.ending.get(key) is not None:
            pod = await self._slices.run(self._pod_with_stale_mark(compiled))
        is_clean = not holding and pod is None
        if is_clean and self._is_writing(key.namespace, since):
            return Result(CATCH_UP_SECONDS, finished=False)
        if is_clean and MARKER_FINALIZER in finalizers:
            rest = tuple(each for each in finalizers if each != MARKER_FINALIZER)
            changed = await self._write_finalizers(marker, rest)
            return Result(CATCH_UP_SECONDS, finished=False) if changed is None or rest else None
        if is_clean:
            state.ending.discard(key)
        elif now - since < DELETION_CHECK_SECONDS:
            return Result(DELETION_CHECK_SECONDS, finished=False)
        pause = self._queues.status_pause_left(key)
        if pause:
            return Result(pause, finished=False)
        self._queues.record_status_update(key)
        status = deleted_status(
            marker,
            compiled.generation,
            nodes=sorted(holding),
            pod=pod,
            refusals=self._refusals_of(compiled),
            now=state.now(),
        )
        await self._write_status(marker, status)
        return None if is_clean else Result(CHECK_SECONDS, finished=False)

    def _is_writing(self, namespace: str, since: float) -> bool:
        """Whether a patch of a pod is in flight that began before `since`: it may write marks of the marker."""
        for key, sent_at in self._state.writing.items():
            if key.namespace == namespace and sent_at <= since:
                return True
        return False

    def _refusals_of(self, compiled: CompiledMarker) -> dict[NamespacedName, str]:
        """The pods with marks of the marker on which the API server refuses changes of it, and why."""
        found: dict[NamespacedName, str] = {}
        for key in self._state.refusals:
            pod = self._state.pods.get(key) if key.namespace == compiled.key.namespace else None
            if pod is not None and not pod.owned.isdisjoint(compiled.marks):
                why = self._state.refusal_of(compiled.key.name, key)
                if why:
                    found[key] = why
        return found

    def _pod_with_stale_mark(self, compiled: CompiledMarker) -> Steps[NamespacedName | None]:
        """A pod that still carries a mark of the marker, or None."""
        matching = self._state.matching
        marked = [*self._state.marked.of_marker(compiled)]
        for number, pod in enumerate(marked + matching.pods_of(compiled), start=1):
            if number <= len(marked) or unowned_marks(pod, compiled):
                claims = claims_of(matching.considered_of(pod))
                if StaleMarks(pod, claims).has_any_of(compiled):
                    return pod.key
            if number % PODS_PER_STEP == 0:
                yield
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
