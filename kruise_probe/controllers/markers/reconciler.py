"""Keeps what a marker says of itself true, and its finalizer in place for as long as it is needed. Key: namespace/name.

The finalizer is added at the first look, beside the planning of entries and not before it: should a marker
vanish without it, entries and marks are found from the nodes and pods themselves. It goes last, when no
NodePodProbe holds an entry and no pod carries a mark; all of that is read from synced caches, so a failed read
cannot look like an end.

Source: Kruise pkg/controller/podprobemarker (Reconcile, handlerPodProbeMarkerFinalizer).
Differs: deletion waits for what is really left, wherever it is, not for the pods that match at that moment.
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
from kruise_probe.client.request import PatchType
from kruise_probe.client.series import PodRef
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
from kruise_probe.workqueue.consume import Result

CATCH_UP_SECONDS: Final = 0.2
"""Until the next look after somebody else changed the marker meanwhile."""

DELETION_CHECK_SECONDS: Final = 5.0
"""How often a deletion that waits is looked at without cause, and after which its status says why."""


CENSUS_SLICE: Final = 256
"""Pods that are counted in one go, some 4 ms; then others on the loop have their turn."""

PRUNED_LOOK_SECONDS: Final = 30.0
"""How often is looked, while the CRD is Kruise's, whether another one keeps the whole status by now."""


class Recorder(Protocol):
    """Where Warning events go; `EventRecorder` is one."""

    def event(self, pod: PodRef, type: str, reason: str, message: str) -> None: ...


class MarkerReconciler:
    """Writes a marker's status at most once a second and only when it differs, and its finalizer.

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
            # Such as from a webhook that somebody left behind: the status tells all the same.
            await self._report(marker, compiled)
            raise
        if held is None:
            return Result(CATCH_UP_SECONDS)
        await self._report(held, compiled)
        return Result(PRUNED_LOOK_SECONDS) if self._pruned else None

    def _refresh_cycles(self, key: NamespacedName) -> None:
        """Has the markers looked at again whose cycles changed; this one later, if it is too early for that."""
        time = asyncio.get_running_loop().time
        changed, again_seconds = self._caches.cycles.refresh(key.namespace, time)
        for each in changed:
            if each != key:
                self._pace.request(each)
        if again_seconds:
            self._pace.request(key, delay_seconds=again_seconds)

    async def _held(self, marker: PodProbeMarker) -> PodProbeMarker | None:
        """The marker with our finalizer, or None when it has changed meanwhile."""
        finalizers = marker.metadata.finalizers or ()
        if MARKER_FINALIZER in finalizers:
            return marker
        return await self._write_finalizers(marker, (*finalizers, MARKER_FINALIZER))

    async def _report(self, marker: PodProbeMarker, compiled: CompiledMarker) -> None:
        """Takes the census, if it is due, and writes what it says."""
        if not self._pace.is_due(marker.key):
            self._pace.request(marker.key)
            return
        wanted = await self._census(marker, compiled)
        await self._write_status(marker, wanted)
        self._warn(marker, wanted)

    async def _census(
        self, marker: PodProbeMarker, compiled: CompiledMarker
    ) -> PodProbeMarkerStatus:
        """Counts slice by slice, so that results need not wait for it: a marker may match all pods of a large cluster.

        What changes meanwhile, and so may be counted before or after, has asked for another census.
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
        """Those of these pods on which the API server refuses what `marker` wants, and why."""
        name, why_refused = marker.key.name, self._pods.why_refused
        return {each.key: why for each in pods if (why := why_refused(each.key, name))}

    def _sighting(
        self,
        compiled: CompiledMarker,
        pod: Pod,
        markers: tuple[CompiledMarker, ...],
        stale: dict[str, bool],
    ) -> Sighting | None:
        """What counts of a pod; None unless it takes part and its Node exists. `stale` remembers nodes that were asked."""
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
        """One Warning per conflict and per invalid spec: none for what the status, or this process, has said already."""
        news = _warnings(status)
        said = _warnings(marker.status) | self._warned.pop(marker.key, frozenset())
        fresh = news - said - {each for each in news if _is_known(each[0], said)}
        if news:
            self._warned[marker.key] = news
        about = PodRef(*marker.key, marker.uid, MARKERS.api_version, MARKERS.kind)
        for reason, message in sorted(fresh):
            self._recorder.event(about, "Warning", reason, message)

    async def _finish(self, marker: PodProbeMarker, compiled: CompiledMarker) -> Result | None:
        """Removes the finalizer once nothing of the marker is left; until then says what is.

        A marker that others hold for longer stays readable: its status says that nothing of it is left.
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
        """At the pace of other reports: who holds the marker may edit it as often as they like."""
        if not self._pace.is_due(marker.key):
            self._pace.request(marker.key)
            return
        self._pace.finished(marker.key, 0.0)
        await self._write_status(marker, counting.ended(marker, compiled.generation, self._now()))

    def _still_marked(self, compiled: CompiledMarker) -> NamespacedName | None:
        """A pod that still carries a mark of the marker, or None."""
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
        """Writes the list, unless the marker has changed meanwhile (others keep finalizers there too): then None."""
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
    """Whether another message of the same reason says nothing new."""
    return reason in counting.WARNED_OF_ONCE and any(each == reason for each, _ in said)
