"""Reconciles the conditions, labels and annotations of one pod. Key: namespace/name.

Source: Kruise pkg/controller/nodepodprobe (Reconcile, updatePodProbeStatus).
Differs: one pod per key instead of one node; a patch instead of an update of the whole object.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from typing import Final, NamedTuple

from prometheus_client import Counter, Histogram

from kruise_probe.api.core import Node
from kruise_probe.api.errors import KubeError
from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.pods import Pod
from kruise_probe.api.resources import PODS
from kruise_probe.client.event_series import ObjectReference
from kruise_probe.client.request import PatchType
from kruise_probe.controllers.caches import Caches
from kruise_probe.controllers.compiled import CompiledMarker
from kruise_probe.controllers.daemon_leases import Verdict
from kruise_probe.controllers.limits import NOTHING_LEFT_OUT, left_out_of
from kruise_probe.controllers.marked_pods import sets_mark_of
from kruise_probe.controllers.nodes.plan import is_probed
from kruise_probe.controllers.pods.claims import NO_CLAIMS, Claims, claims_of
from kruise_probe.controllers.pods.marking import Changes, States, marking
from kruise_probe.controllers.pods.patch import (
    PatchPart,
    encode_patch,
    parts_of,
    pod_is_gone,
    refusal,
    was_applied,
)
from kruise_probe.controllers.pods.write_limits import (
    WriteCause,
    WriteLimits,
    cause_of,
)
from kruise_probe.controllers.queues import Queues
from kruise_probe.controllers.serverless import is_virtual, states_of_conditions
from kruise_probe.controllers.writes import NO_REFUSALS, Recorder, Refusals, Writer, WriteResults
from kruise_probe.workqueue.controller import Result

CONTESTED_SECONDS: Final = 1.0
"""Requeue delay of a pod if the response to our patch shows that another client reverted it."""

LABEL_CHANGED: Final = "KruiseProbeLabelChanged"
"""Reason of the event on a pod whose label got another value from the message."""
NO_VALUE: Final = "(none)"

_result_to_condition: Final = Histogram(
    "kruise_probe_result_to_condition_seconds",
    "From the watch event of a changed result to the API server's response to the patch of the pod.",
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
_writes_delayed: Final = Counter(
    "kruise_probe_pod_writes_delayed",
    "Reconciles that delayed the write of a pod because its token bucket was empty, by cause.",
    ("cause",),
)


class _Needed(NamedTuple):
    """The changes that a pod needs, and the claims on it.

    `undecided`: whether the results of its node are stale is not known yet, so no results are applied.
    """

    changes: Changes | None
    claims: Claims
    undecided: bool


_NOTHING_NEEDED: Final = _Needed(None, NO_CLAIMS, undecided=False)


class _Known(NamedTuple):
    """What is known of the results of a pod.

    `stale` is why they are stale, `undecided` that this is not known yet. `by_provider`: a provider writes the conditions.
    """

    states: States
    stale: str = ""
    undecided: bool = False
    by_provider: bool = False


class PodReconciler:
    """Writes the marks of pods: one patch per pod and change, or one per part if the API server refuses that.

    `limits` decides when a pod may be written. `results` receives refusals, and names the probes that do not fit
    into a NodePodProbe. `serverless` is the gate of the serverless protocol.
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
        self._limits = limits
        self._results = results
        self._recorder = recorder
        self._serverless = serverless
        self._now = now

    async def reconcile(self, key: NamespacedName) -> Result | None:
        pod, pending = self._caches.pods.get(key), self._limits.pending(key)
        if pod is None:
            self._record(key, None, NO_REFUSALS)
            return None
        ended = self._caches.ended.get(key, ())
        edited = pending.edited if pending is not None else ()
        changes, claims, undecided = self._changes(pod, edited, ended)
        if changes is None:
            self._record(key, pod, NO_REFUSALS)
            self._forget_ended(key, ended)
            if not undecided:  # else the verdict on its node enqueues the pod again
                self._limits.take_pending(key)
            return None
        cause = cause_of(pod, changes, claims, pending.change if pending is not None else None)
        probes = len(claims.claims)
        wait = self._limits.wait_seconds(key, cause, probes=probes, now=_loop_time())
        if wait > 0:
            _writes_delayed.labels(cause).inc()
            if cause in (WriteCause.MARKS, WriteCause.FIRST_RESULT):
                self._queues.enqueue_status_of(self._caches.matching.markers_of(pod))
            return Result(wait, finished=False)
        written, failure = await self._write_pending(pod, changes, claims, undecided=undecided)
        if written is None:
            return None
        self._limits.record_write(key, cause, probes=probes, now=_loop_time())
        if cause in (WriteCause.LABEL, WriteCause.MESSAGE):
            self._report_labels(pod, changes, claims)
        if failure is not None:
            raise failure
        self._record(key, pod, NO_REFUSALS)
        self._forget_ended(key, ended)
        return None if was_applied(changes, written) else Result(CONTESTED_SECONDS)

    def _forget_ended(self, key: NamespacedName, ended: tuple[CompiledMarker, ...]) -> None:
        """Forget markers whose marks have been removed, unless another one has ended meanwhile."""
        if self._caches.ended.get(key) is ended:
            del self._caches.ended[key]

    async def _write_pending(
        self, pod: Pod, changes: Changes, claims: Claims, *, undecided: bool
    ) -> tuple[Pod | None, KubeError | None]:
        """Write the changes, which cover the pending change; see `_write`. Return no pod if it is gone.

        A change that was not written stays pending: a retry has the same cause, and measures from the same event.
        """
        pending = self._limits.take_pending(pod.key)
        covered = False
        self._caches.marked.patch_sent(pod, changes)
        try:
            result = await self._write(pod, changes, claims)
            covered = not undecided
        except KubeError as error:
            if pod_is_gone(error):
                return None, None
            raise
        finally:
            if pending is not None and not covered:
                self._limits.put_back(pod.key, pending)
            self._caches.marked.patch_done(pod)
            self._enqueue_waiting_deletions(pod, changes)
        if pending is not None and pending.seen_at is not None and covered:
            _result_to_condition.observe(_loop_time() - pending.seen_at)
        return result

    def _report_labels(self, pod: Pod, changes: Changes, claims: Claims) -> None:
        """Record one event for the labels with another value from the message."""
        labels = [
            f"{claims.labels[key].name}: {key} {pod.labels.get(key, NO_VALUE)} → {value or NO_VALUE}"
            for key, value in changes.labels.items()
        ]
        if labels:
            about = ObjectReference(pod.namespace, pod.name, pod.uid)
            self._recorder.event(about, "Normal", LABEL_CHANGED, "; ".join(labels))

    def _enqueue_waiting_deletions(self, pod: Pod, changes: Changes) -> None:
        """Enqueue deleted markers whose finalizers waited for this patch, and the pod's node."""
        deleting = self._caches.matching.deleting(pod.namespace).values()
        waiting = [each for each in deleting if sets_mark_of(each, changes)]
        if waiting:
            self._queues.enqueue_node_after(pod.node)
            self._queues.enqueue_status_of(waiting)

    async def _write(
        self, pod: Pod, changes: Changes, claims: Claims
    ) -> tuple[Pod, KubeError | None]:
        """Write the changes; return the pod, and the error if some parts were refused.

        Raises:
            KubeError: nothing was written, or the error does not depend on the changes.
        """
        try:
            return await self._patch(pod, changes), None
        except KubeError as error:
            why = refusal(error)
            if not why:
                raise
            parts = parts_of(changes, claims)
            if len(parts) == 1:
                self._record(pod.key, pod, {parts[0].marker: why})
                raise
        return await self._write_parts(pod, parts)

    async def _write_parts(
        self, pod: Pod, parts: Iterable[PatchPart]
    ) -> tuple[Pod, KubeError | None]:
        """Write one patch per part, so that a refused part only affects its own marker; see `_write`."""
        refused: dict[str, str] = {}
        written, failure = None, None
        for part in parts:
            try:
                written = await self._patch(pod, part.changes)
            except KubeError as error:
                why = refusal(error)
                if not why:
                    raise
                refused[part.marker], failure = why, error
        self._record(pod.key, pod, refused)
        if written is None:
            assert failure is not None, "there are two parts at least"
            raise failure
        return written, failure

    async def _patch(self, pod: Pod, changes: Changes) -> Pod:
        written = await self._client.patch(
            PODS,
            pod.key,
            encode_patch(pod, changes),
            patch_type=PatchType.STRATEGIC_MERGE,
            subresource="status",
        )
        self._caches.pods.record_write(written)
        return written

    def _record(self, key: NamespacedName, pod: Pod | None, refusals: Refusals) -> None:
        """Record refusals; enqueue the markers. The deletion of a pod enqueues its markers itself."""
        if self._results.set_refusals(key, refusals) and pod is not None:
            deleting = self._caches.matching.deleting(pod.namespace).values()
            self._queues.enqueue_status_of({*self._caches.matching.markers_of(pod), *deleting})

    def _changes(
        self, pod: Pod, edited: Collection[str], ended: Iterable[CompiledMarker]
    ) -> _Needed:
        if pod.mirror:
            return _NOTHING_NEEDED
        markers = self._caches.matching.markers_of(pod)
        claims = claims_of(markers)
        node = self._caches.node(pod.node)
        known = self._known(pod, node, claims, markers)
        has_entry = node is not None and is_probed(pod) and not known.by_provider
        changes = marking(
            pod,
            claims,
            known.states,
            stale=known.stale,
            left_out=left_out_of(pod, markers, self._results.no_room(pod))
            if has_entry
            else NOTHING_LEFT_OUT,
            writes_conditions=not known.by_provider,
            edited=edited,
            ended=[*(each for each in markers if each.deleting), *ended],
            now=self._now(),
        )
        return _Needed(changes, claims, known.undecided)

    def _known(
        self, pod: Pod, node: Node | None, claims: Claims, markers: tuple[CompiledMarker, ...]
    ) -> _Known:
        """What is known of the results. Without a state, conditions and marks stay."""
        if node is None or not pod.active or not claims.claims:
            return _Known({})
        if is_virtual(node):
            return _Known(
                states_of_conditions(pod, claims) if self._serverless else {}, by_provider=True
            )
        if self._caches.leases.verdict(pod.node) is Verdict.UNDECIDED:
            return _Known({}, undecided=True)
        # Where the API server changes entries, the daemon reports hashes of the changed ones.
        compared = markers if self._results.altered(pod.node) is None else ()
        states = self._caches.node_index.states_of(pod, compared)
        return _Known(states, self._caches.leases.stale_message(pod.node))


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
