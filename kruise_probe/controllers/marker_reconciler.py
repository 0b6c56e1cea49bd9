"""Reconciles the status and the finalizer of a marker. Key: namespace/name.

The first reconcile adds the finalizer; the planning of entries does not wait for it. If a marker is deleted without
the finalizer, its entries and marks are found from the nodes and pods. The finalizer is removed when no NodePodProbe
holds an entry and no pod carries a mark. All of that is read from synced caches, so a failed read cannot remove it.

Source: Kruise pkg/controller/podprobemarker (Reconcile, handlerPodProbeMarkerFinalizer).
Differs: deletion waits for all entries and marks that exist, not for the pods that match at that moment.
"""

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from kruise_probe.api.errors import Conflict, KubeError, NotFound
from kruise_probe.api.meta import Condition, NamespacedName
from kruise_probe.api.names import MARKER_FINALIZER
from kruise_probe.api.resources import MARKERS
from kruise_probe.api.times import CLOCK_SLACK_SECONDS, loop_time
from kruise_probe.api.v1alpha1 import PodProbeMarker, PodProbeMarkerStatus
from kruise_probe.client.request import PatchType
from kruise_probe.client.rest import RestClient
from kruise_probe.controllers.causes import NO_DAEMON
from kruise_probe.controllers.claims import (
    ClaimConflict,
    StaleMarks,
    claims_of,
    conflicts_of,
    unowned_marks,
)
from kruise_probe.controllers.compiled import CompiledMarker
from kruise_probe.controllers.conditions import WARNING_REASONS, Facts
from kruise_probe.controllers.counts import (
    NODES_BEHIND,
    TWO_DAEMONS,
    facts_of_left_out,
)
from kruise_probe.controllers.inherited import Inherited
from kruise_probe.controllers.limits import TOO_MANY_MARKERS
from kruise_probe.controllers.marker_status import (
    deleted_status,
    differs,
    encode_status,
    marker_status,
)
from kruise_probe.controllers.readiness import Lasting, reasons_of
from kruise_probe.controllers.state import Altered, State
from kruise_probe.controllers.tallies import StatusCounts
from kruise_probe.runtime.recorder import EventRecorder, ObjectReference
from kruise_probe.workqueue.controller import Result
from kruise_probe.workqueue.slices import PODS_PER_STEP, Slices, Steps

STATUS_INTERVAL_SECONDS: Final = 1.0
"""Minimum time between two status updates of one marker. Thousands of pods may change in it."""

CATCH_UP_SECONDS: Final = 0.2
"""Requeue delay while the cache is behind the API server."""

DELETION_CHECK_SECONDS: Final = 5.0
"""After this time the status of a marker whose deletion waits reports why."""

CHECK_SECONDS: Final = 30.0
"""Requeue interval of a marker with something that no event shows: the CRD prunes status fields, a deletion waits for long, or
pods change for which the marker is not considered."""


class MarkerReconciler:
    """Writes a marker's finalizer, and its status at most once a second and only if it differs."""

    def __init__(
        self,
        state: State,
        client: RestClient,
        recorder: EventRecorder,
    ) -> None:
        self._state = state
        self._queues = state.queues
        self._client = client
        self._recorder = recorder
        self._known: dict[NamespacedName, _Known] = {}
        self._slices = Slices()

    async def reconcile(self, key: NamespacedName) -> Result | None:
        state = self._state
        marker = state.markers.get(key)
        compiled = state.matching.markers.get(key)
        if marker is None or compiled is None:
            self._known.pop(key, None)
            state.foreign.forget(key)
            return None
        known = self._known.get(key)
        if known is None or known.uid != marker.uid:
            if known is not None:  # a marker of this name was deleted
                state.foreign.forget(key)
            known = self._known[key] = _Known(marker)
        if marker.deleting:
            return await self._finalize(marker, compiled, known)
        finalizers = marker.metadata.finalizers
        if MARKER_FINALIZER not in finalizers:
            try:
                changed = await self._write_finalizers(marker, (*finalizers, MARKER_FINALIZER))
            except KubeError:
                # A stale webhook may refuse the finalizer; the status is still written.
                await self._update_status(marker, compiled, known)
                raise
            if changed is None:
                return Result(CATCH_UP_SECONDS, finished=False)
            marker = changed
        return await self._update_status(marker, compiled, known)

    async def _update_status(
        self,
        marker: PodProbeMarker,
        compiled: CompiledMarker,
        known: "_Known",
    ) -> Result | None:
        """Compute and write the status if the pause is over, and all pods have been counted since the last edit."""
        state = self._state
        counts = state.tallies.of(compiled)
        if counts is None:
            return None  # enqueued when they have been counted
        pause = known.pause_left()
        if pause:
            return Result(pause, finished=False)
        beyond = self._pods_beyond(compiled)
        facts_beyond = facts_of_left_out(TOO_MANY_MARKERS.reason)
        counts.change(facts_beyond, beyond)
        facts = self._facts(compiled, counts)
        reasons = reasons_of(compiled, counts)
        lasting = known.lasting.observe(reasons)
        wanted = marker_status(
            marker,
            facts,
            lasting=lasting,
            inherited=known.inherited.current(compiled.generation, loop_time()),
            now=state.now(),
        )
        counts.change(facts_beyond, -beyond)
        await self._write_status(marker, wanted, known)
        self._warn(marker, wanted, known)
        checks = known.lasting.seconds_until_limits()
        checks += known.inherited.seconds_left(loop_time())
        foreign_left = state.foreign.seconds_left(marker.key, loop_time())
        if foreign_left is not None:
            checks.append(foreign_left)
        if beyond or known.altered is not None:
            checks.append(CHECK_SECONDS)
        if not checks:
            return None
        return Result(min(checks))

    def _facts(self, compiled: CompiledMarker, counts: StatusCounts) -> Facts:
        """The counts with what is known of the nodes that they name."""
        state = self._state
        errors = {}
        for name in counts.on_nodes(NODES_BEHIND):
            error = state.spec(name).error
            if error:
                errors[name] = error
        windows = set()
        for name in counts.on_nodes(NO_DAEMON):
            node = state.node(name)
            if node is not None and node.is_windows:
                windows.add(name)
        holders = {}
        for name in counts.on_nodes(TWO_DAEMONS):
            holders[name] = state.leases.two_holders(name)
        alone = claims_of((compiled,))
        own_conflicts = conflicts_of(compiled, alone)
        groups = state.roles.problems_of(compiled)
        return Facts(
            compiled,
            counts,
            conflicts={*counts.of(ClaimConflict), *own_conflicts},
            node_errors=errors,
            holders=holders,
            windows=windows,
            foreign=state.foreign.of(compiled.key, loop_time()),
            large_groups=groups.too_large,
            ungrouped=groups.ungrouped,
        )

    def _pods_beyond(self, marker: CompiledMarker) -> int:
        """The pods for which the marker is not considered, as too many older ones select them. No event of these pods enqueues it."""
        pods = 0
        for label_set in self._state.matching.label_sets_of(marker):
            if marker not in label_set.considered:
                pods += len(label_set.pods)
        return pods

    async def _write_status(
        self,
        marker: PodProbeMarker,
        wanted: PodProbeMarkerStatus,
        known: "_Known",
    ) -> None:
        informer = self._state.informers.markers
        watches = informer.watches
        if known.watches != watches:
            known.watches = watches
            known.altered = None
        if known.altered is None:
            is_current = not differs(wanted, marker.status)
        else:
            is_sent = not differs(wanted, known.altered.sent)
            is_current = is_sent and not differs(known.altered.stored, marker.status)
        if is_current:
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
        informer.record_write(response)
        known.altered = None
        if differs(wanted, response.status):
            stored = response.status or PodProbeMarkerStatus()
            known.altered = Altered(wanted, stored)

    def _warn(
        self,
        marker: PodProbeMarker,
        status: PodProbeMarkerStatus,
        known: "_Known",
    ) -> None:
        """Record a Warning for each reason and generation, unless the status or an earlier event reported it."""
        before = _warnings(marker.conditions)
        reported = {*known.warned, *before}
        known.warned = _warnings(status.conditions)
        involved = ObjectReference(
            *marker.key,
            marker.uid,
            MARKERS.api_version,
            MARKERS.kind,
        )
        for warning in sorted(known.warned.keys() - reported):
            message = known.warned[warning]
            self._recorder.event(involved, "Warning", warning.reason, message)

    async def _finalize(
        self,
        marker: PodProbeMarker,
        compiled: CompiledMarker,
        known: "_Known",
    ) -> Result | None:
        """Remove the finalizer once no entry or mark is left; until then the status reports what is left.

        If finalizers of others keep the marker, its status reports that nothing is left.
        """
        state = self._state
        key = marker.key
        if known.deleting_since is None:
            known.deleting_since = loop_time()
        holding = state.node_index.nodes_holding(key)
        pod = None
        if not holding and state.ending.get(key) is not None:
            pod = await self._slices.run(self._pod_with_stale_mark(compiled))
        if not holding and pod is None:
            if self._is_writing(key.namespace, known.deleting_since):
                return Result(CATCH_UP_SECONDS, finished=False)
            if MARKER_FINALIZER in marker.metadata.finalizers:
                return await self._remove_finalizer(marker)
            state.ending.discard(key)
        elif loop_time() - known.deleting_since < DELETION_CHECK_SECONDS:
            return Result(DELETION_CHECK_SECONDS, finished=False)
        pause = known.pause_left()
        if pause:
            return Result(pause, finished=False)
        status = deleted_status(
            marker,
            compiled.generation,
            nodes=sorted(holding),
            pod=pod,
            refusals=self._refusals_of(compiled),
            now=state.now(),
        )
        await self._write_status(marker, status, known)
        if not holding and pod is None:
            return None
        return Result(CHECK_SECONDS, finished=False)

    async def _remove_finalizer(self, marker: PodProbeMarker) -> Result | None:
        finalizers = marker.metadata.finalizers
        others = [name for name in finalizers if name != MARKER_FINALIZER]
        changed = await self._write_finalizers(marker, tuple(others))
        if changed is None or others:
            return Result(CATCH_UP_SECONDS, finished=False)
        return None

    def _is_writing(self, namespace: str, since: float) -> bool:
        """Whether a patch of a pod is in flight that began before `since`: it may write marks of the marker."""
        for key, sent_at in self._state.writing.items():
            if key.namespace != namespace:
                continue
            if sent_at <= since:
                return True
        return False

    def _refusals_of(self, compiled: CompiledMarker) -> dict[NamespacedName, str]:
        """The pods with marks of the marker on which the API server refuses changes of it, and why."""
        state = self._state
        marker = compiled.key
        found = {}
        for key in state.refused.in_namespace(marker.namespace):
            pod = state.pods.get(key)
            why = state.refused.why(marker.name, key)
            if pod is None or not why:
                continue
            if not pod.owned.isdisjoint(compiled.marks):
                found[key] = why
        return found

    def _pod_with_stale_mark(self, compiled: CompiledMarker) -> Steps[NamespacedName | None]:
        """A pod that still carries a mark of the marker, or None."""
        state = self._state
        marked = state.marked.of_marker(compiled)
        selected = [pod.key for pod in state.matching.pods_of(compiled)]
        keys = marked + selected
        for number, key in enumerate(keys, start=1):
            pod = state.pods.get(key)
            if pod is None:
                continue
            is_marked = number <= len(marked)
            if is_marked or unowned_marks(pod, compiled):
                considered = state.matching.considered_of(pod)
                claims = claims_of(considered).on(pod)
                stale = StaleMarks(pod, claims)
                if stale.has_any_of(compiled):
                    return key
            if number % PODS_PER_STEP == 0:
                yield
        return None

    async def _write_finalizers(
        self,
        marker: PodProbeMarker,
        finalizers: tuple[str, ...],
    ) -> PodProbeMarker | None:
        """Write the finalizers; return None on a conflict, as others write finalizers too."""
        metadata = {"resourceVersion": marker.resource_version, "finalizers": finalizers}
        body = msgspec.json.encode({"metadata": metadata})
        try:
            changed = await self._client.patch(
                MARKERS,
                marker.key,
                body,
                patch_type=PatchType.MERGE,
            )
        except (Conflict, NotFound):
            return None
        self._state.informers.markers.record_write(changed)
        return changed


class _Warning(NamedTuple):
    """A condition that is worth a Warning: one event for each generation of the marker."""

    reason: str
    generation: int


class _Known:
    """What is known of a marker that its object does not show.

    Attributes:
        lasting: for its condition Ready.
        inherited: what the previous manager reported of it.
        warned: the last Warnings, with their messages.
        deleting_since: loop time.
        altered: its status, if the installed CRD prunes fields of it.
        watches: the number of watches at the last write; a new one may belong to another definition, which may keep more.
    """

    def __init__(self, marker: PodProbeMarker) -> None:
        self.lasting: Final = Lasting()
        self.inherited: Final = Inherited(marker.conditions, loop_time())
        self.uid: Final = marker.uid
        self.warned: Mapping[_Warning, str] = {}
        self.deleting_since: float | None = None
        self.altered: Altered[PodProbeMarkerStatus] | None = None
        self.watches = 0
        self._not_before = -math.inf

    def pause_left(self) -> float:
        """Seconds until the status may be updated again; 0.0 if it is updated now, which begins the next pause."""
        now = loop_time()
        left = self._not_before - now
        if left > CLOCK_SLACK_SECONDS:
            return left
        self._not_before = now + STATUS_INTERVAL_SECONDS
        return 0.0


def _warnings(conditions: tuple[Condition, ...]) -> Mapping[_Warning, str]:
    """The messages of the conditions that are worth a Warning."""
    found = {}
    for condition in conditions:
        reason = condition.reason
        if condition.status != "True":
            continue
        if reason not in WARNING_REASONS:
            continue
        generation = condition.observed_generation or 0
        warning = _Warning(reason, generation)
        found[warning] = condition.message
    return found
