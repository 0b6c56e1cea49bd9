"""Reconciles the conditions, labels and annotations of one pod. Key: namespace/name.

Source: Kruise pkg/controller/nodepodprobe (Reconcile, updatePodProbeStatus).
Differs: one pod per key instead of one node; a patch instead of an update of the whole object.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Final, NamedTuple

from kruise_probe.api.errors import KubeError
from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.pods import Pod
from kruise_probe.api.resources import PODS
from kruise_probe.client.request import PatchType
from kruise_probe.controllers.caches import Caches
from kruise_probe.controllers.limits import NOTHING_LEFT_OUT, left_out_of
from kruise_probe.controllers.metrics import POD_WRITES_DELAYED, RESULT_TO_CONDITION
from kruise_probe.controllers.nodes.plan import is_probed
from kruise_probe.controllers.pods.claims import Claims, claims_of
from kruise_probe.controllers.pods.marking import Changes, States, marking
from kruise_probe.controllers.pods.patch import (
    EVERY_MARKER,
    Part,
    encode_patch,
    parts_of,
    pod_is_gone,
    refusal,
)
from kruise_probe.controllers.pods.write_limits import WriteCause, WriteLimits, cause_of
from kruise_probe.controllers.result_changes import ResultChange
from kruise_probe.controllers.serverless import is_virtual, states_of
from kruise_probe.controllers.writer import Writer
from kruise_probe.workqueue.controller import Result

Refused = Mapping[str, str]
"""By marker, why the API server refuses its changes of a pod."""

NOT_REFUSED: Final[Refused] = MappingProxyType({})

CONTESTED_SECONDS: Final = 1.0
"""Requeue delay of a pod if the response to our patch shows that another client reverted it."""


class _Reported(NamedTuple):
    """The change reported on a pod since its last write, and when first; None if a provider reported it."""

    change: ResultChange
    seen_at: float | None


class PodReconciler:
    """Writes the marks of pods: one patch per pod and change, or one per part if the API server refuses that.

    `limits` decides when a pod may be written. `serverless` is the gate of the serverless protocol. `on_refusal` is
    called with a pod when the refusals of its marks change, to update the status of markers. `on_answer` is called
    with a pod and its changes when the patch is no longer in flight, as a marker's deletion may wait for it.
    `no_room` names the markers whose probes of a pod do not fit into its node's NodePodProbe.
    """

    def __init__(
        self,
        caches: Caches,
        client: Writer,
        *,
        limits: WriteLimits,
        serverless: bool,
        on_refusal: Callable[[Pod], None],
        on_answer: Callable[[Pod, Changes], None],
        no_room: Callable[[Pod], Collection[str]],
        now: Callable[[], datetime],
    ) -> None:
        self._caches = caches
        self._client = client
        self._limits = limits
        self._serverless = serverless
        self._on_refusal = on_refusal
        self._on_answer = on_answer
        self._no_room = no_room
        self._now = now
        self._reported: dict[NamespacedName, _Reported] = {}
        self._refusals: dict[NamespacedName, Refused] = {}

    def why_refused(self, key: NamespacedName, marker: str) -> str:
        """Why the API server refuses the marks of a marker on a pod, or empty. The write is retried with backoff."""
        refused = self._refusals.get(key, NOT_REFUSED)
        return refused.get(marker) or refused.get(EVERY_MARKER, "")

    def result_seen(self, key: NamespacedName, change: ResultChange) -> None:
        """Records the change and the time of a result. Of several results the first time counts."""
        self._remember(key, _Reported(change, asyncio.get_running_loop().time()))

    def state_changed(self, key: NamespacedName) -> None:
        """Records that a serverless provider changed a condition of the pod."""
        self._remember(key, _Reported(ResultChange.STATE, None))

    def gone(self, key: NamespacedName) -> None:
        """Removes a deleted pod."""
        self._reported.pop(key, None)
        self._refusals.pop(key, None)
        self._limits.forget(key)

    async def reconcile(self, key: NamespacedName) -> Result | None:
        reported = self._reported.pop(key, None)
        pod = self._caches.pods.get(key)
        changes = self._changes(pod) if pod is not None else None
        if pod is None or changes is None:
            self._record(key, pod, NOT_REFUSED)
            return None
        cause = cause_of(pod, changes, reported.change if reported is not None else None)
        probes = self._probes(pod) if cause is WriteCause.FIRST_RESULT else 0
        wait = self._limits.wait_seconds(key, cause, probes=probes, now=_now())
        if wait > 0:
            POD_WRITES_DELAYED.labels(cause).inc()
            return Result(wait)
        self._caches.marked.sent(pod, changes)
        try:
            written, failure = await self._write(pod, changes)
        except KubeError as error:
            if pod_is_gone(error):
                self._record(key, None, NOT_REFUSED)
                return None
            if reported is not None:
                self._remember(key, reported)
            raise
        finally:
            self._caches.marked.answered(pod)
            self._on_answer(pod, changes)
        self._limits.wrote(key, cause, probes=probes, now=_now())
        if reported is not None and reported.seen_at is not None:
            RESULT_TO_CONDITION.observe(_now() - reported.seen_at)
        if failure is not None:
            raise failure
        self._record(key, pod, NOT_REFUSED)
        return Result(CONTESTED_SECONDS) if self._changes(written) is not None else None

    def _remember(self, key: NamespacedName, reported: _Reported) -> None:
        """Merges a report into the pending one: keeps the most important change and the earliest time."""
        known = self._reported.get(key)
        if known is not None:
            seen = [each.seen_at for each in (known, reported) if each.seen_at is not None]
            reported = _Reported(max(known.change, reported.change), min(seen, default=None))
        self._reported[key] = reported

    def _probes(self, pod: Pod) -> int:
        return len(claims_of(self._caches.matching.markers_of(pod)).claims)

    async def _write(self, pod: Pod, changes: Changes) -> tuple[Pod, KubeError | None]:
        """Writes the changes; returns the pod, and the error if some parts were refused.

        Raises:
            KubeError: nothing was written, or the error does not depend on the changes.
        """
        try:
            return await self._patch(pod, changes), None
        except KubeError as error:
            why = refusal(error)
            if not why:
                raise
            parts = parts_of(changes, claims_of(self._caches.matching.markers_of(pod)))
            if len(parts) == 1:
                self._record(pod.key, pod, {parts[0].marker: why})
                raise
        return await self._write_parts(pod, parts)

    async def _write_parts(self, pod: Pod, parts: Iterable[Part]) -> tuple[Pod, KubeError | None]:
        """Writes one patch per part, so that a refused part only affects its own marker; see `_write`."""
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
        if failure is not None:
            self._record(pod.key, pod, refused)
            if written is None:
                raise failure
        assert written is not None, "there are two parts at least"
        return written, failure

    async def _patch(self, pod: Pod, changes: Changes) -> Pod:
        written = await self._client.patch(
            PODS,
            pod.key,
            encode_patch(pod, changes),
            patch_type=PatchType.STRATEGIC_MERGE,
            subresource="status",
        )
        self._caches.pods.wrote(written)
        return written

    def _record(self, key: NamespacedName, pod: Pod | None, refused: Refused) -> None:
        """Deleted pods are not reported; the deletion itself enqueues their markers."""
        if self._refusals.get(key, NOT_REFUSED) == refused:
            return
        if refused:
            self._refusals[key] = refused
        else:
            del self._refusals[key]
        if pod is not None:
            self._on_refusal(pod)

    def _changes(self, pod: Pod) -> Changes | None:
        if pod.mirror:
            return None
        markers = self._caches.matching.markers_of(pod)
        claims = claims_of(markers)
        states, stale, provider_writes = self._results(pod, claims)
        planned = is_probed(pod) and self._caches.node(pod.node) and not provider_writes
        return marking(
            pod,
            claims,
            states,
            stale=stale,
            left_out=left_out_of(pod, markers, self._no_room(pod)) if planned else NOTHING_LEFT_OUT,
            writes_conditions=not provider_writes,
            now=self._now(),
        )

    def _results(self, pod: Pod, claims: Claims) -> tuple[States, str, bool]:
        """The states to apply, why they are stale, and whether a provider writes the conditions."""
        node = self._caches.node(pod.node)
        if node is None or not pod.active or not claims.claims:
            return {}, "", False
        if is_virtual(node):
            return (states_of(pod, claims) if self._serverless else {}), "", True
        return self._caches.states_of(pod), self._caches.stale_message(pod.node), False


def _now() -> float:
    return asyncio.get_running_loop().time()
