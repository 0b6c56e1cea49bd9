"""Reconciles the conditions, labels and annotations of one pod. Key: namespace/name.

Source: Kruise pkg/controller/nodepodprobe (Reconcile, updatePodProbeStatus).
Differs: one pod per key instead of one node; a patch instead of an update of the whole object.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from prometheus_client import Counter, Histogram

from kruise_probe.api.errors import ApiError, Conflict, KubeError
from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.pods import NOTHING_OWNED, Mark, Owned, Pod
from kruise_probe.api.resources import MARKERS, PODS
from kruise_probe.api.times import loop_time
from kruise_probe.client.request import PatchType
from kruise_probe.client.rest import RestClient
from kruise_probe.controllers.claims import Claims, claims_of, marks_of
from kruise_probe.controllers.foreign import ADMISSION, REMOVED, ForeignChange
from kruise_probe.controllers.marking import Changes, marking
from kruise_probe.controllers.node_index import ResultsChange
from kruise_probe.controllers.refused import Refusals
from kruise_probe.controllers.role_groups import WRITE_BUCKETS, HolderChange, reference_of
from kruise_probe.controllers.roles import NO_ROLES, Roles, carried, marks_to_set, moves_role
from kruise_probe.controllers.state import State
from kruise_probe.controllers.writes import (
    WriteCause,
    cause_of,
    encode_patch,
    not_applied,
    parts_of,
    pod_is_gone,
    refusal,
    split_off,
)
from kruise_probe.runtime.recorder import EventRecorder, ObjectReference
from kruise_probe.workqueue.controller import Result

CONTESTED_SECONDS: Final = 1.0
"""Requeue delay of a pod if the response to our patch shows that another client reverted it."""

ROLE_SECONDS: Final = 0.5
"""Requeue delay of a pod that may not get a role yet, if no event tells when."""

HOLDER_CHANGED: Final = "KruiseProbeHolderChanged"
"""Reason of the event on both pods and the marker if a role moves."""

LABEL_CHANGED: Final = "KruiseProbeLabelChanged"
"""Reason of the event on a pod whose label got another value from the message."""
NO_VALUE: Final = "(none)"

_result_to_condition: Final = Histogram(
    "kruise_probe_result_to_condition_seconds",
    "From the watch event of a new state to the API server's response to the patch of the pod.",
    buckets=WRITE_BUCKETS,
)
_writes_delayed: Final = Counter(
    "kruise_probe_pod_writes_delayed",
    "Reconciles that delayed the write of a pod because its token bucket was empty, by cause.",
    ("cause",),
)


class _Write(NamedTuple):
    """Changes of a pod that are to be written.

    Attributes:
        claims: those on the pod.
        pending: the change of results that the write covers.
        ended: the ended marks that it removes.
        sets: the marks of roles that it sets.
    """

    pod: Pod
    claims: Claims
    changes: Changes
    roles: Roles
    pending: ResultsChange | None
    ended: Owned
    cause: WriteCause
    sets: Owned


class PodReconciler:
    """Writes the marks of pods: one patch per pod and change, and one per part that the API server refuses."""

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
        self._pacer = state.pacer
        self._roles = state.roles
        self._fence = state.role_fence

    async def reconcile(self, key: NamespacedName) -> Result | None:
        state = self._state
        pod = state.pods.get(key)
        if pod is None:  # It may have been deleted during a write, which recorded it again.
            self._pacer.forget(key)
            state.refused.forget(key)
            return None
        pending = self._pacer.pending.get(key)
        ended = state.ended.get(key, NOTHING_OWNED)
        considered = state.matching.considered_of(pod)
        claims = claims_of(considered).on(pod)
        results = state.results_of(pod, considered)
        roles = NO_ROLES
        if claims.exclusive or pod.uid in self._roles.of_pod:
            roles = self._roles.roles_of(pod, claims, results)
        all_ended = ended
        for marker in state.ending.selecting(pod):
            all_ended |= marks_of(pod, marker)
        edited: frozenset[str] = frozenset()
        if pending is not None:
            edited = pending.edited
        changes = marking(
            pod,
            claims,
            results,
            edited=edited,
            ended=all_ended,
            roles=roles,
            now=state.now(),
        )
        self._report_removed(pod, changes, claims)
        if changes is None:
            self._record_refusals(pod, {})
            self._forget_ended(pod, ended)
            self._pacer.drop_pending(key, pending)
            return _retry_of(roles)
        cause = cause_of(pod, changes, claims, pending)
        sets = NOTHING_OWNED
        if roles:
            sets = marks_to_set(changes.keys, claims.exclusive, roles)
            if moves_role(changes.keys, claims.exclusive, roles):
                cause = WriteCause.STATE
        write = _Write(pod, claims, changes, roles, pending, ended, cause, sets)
        delay = self._delay_of(write)
        if delay is not None:
            return delay
        return await self._write(write)

    def _delay_of(self, write: _Write) -> Result | None:
        """How long the write is delayed; None if it may be sent now."""
        key = write.pod.key
        probes = len(write.claims.claims)
        wait = self._pacer.wait_seconds(
            key,
            write.cause,
            probes=probes,
            now=loop_time(),
        )
        if wait <= 0:
            return None
        _writes_delayed.labels(write.cause).inc()
        if write.cause is not WriteCause.MESSAGE:
            self._state.recount(key)
        return Result(wait, finished=False)

    async def _write(self, write: _Write) -> Result | None:
        """Send it, and record what the API server stored."""
        pod = write.pod
        key = pod.key
        namespace = pod.namespace
        if write.sets and not self._fence.is_current(namespace):
            await self._fence.make_current(namespace, self._client)
            if self._fence.is_current(namespace):
                return Result(0.0)
            return Result(ROLE_SECONDS)
        self._state.writing[key] = loop_time()
        try:
            written, failure = await self._send(write)
        except KubeError as error:
            if pod_is_gone(error):
                return None
            if write.sets and isinstance(error, Conflict):
                return Result(ROLE_SECONDS)
            raise
        finally:
            del self._state.writing[key]
            if write.roles:
                self._roles.wake_waiting(pod)
        self._record(write, written)
        if failure is not None:
            raise failure
        self._forget_ended(pod, write.ended)
        if self._is_contested(write, written):
            return Result(CONTESTED_SECONDS)
        return _retry_of(write.roles)

    def _record(self, write: _Write, written: Pod) -> None:
        """Record a write, also of some parts only."""
        key = written.key
        now = loop_time()
        pending = write.pending
        self._pacer.drop_pending(key, pending)
        if pending is not None and pending.seen_at is not None:
            _result_to_condition.observe(now - pending.seen_at)
        self._pacer.record_write(
            key,
            write.cause,
            probes=len(write.claims.claims),
            now=now,
        )
        if write.cause in (WriteCause.LABEL, WriteCause.MESSAGE):
            self._report_labels(write, written)
        if not write.roles:
            return
        self._roles.record_write(written, write.claims)
        for claim in write.claims.exclusive:
            marks = carried(written, claim)
            if write.sets.isdisjoint(marks):
                continue
            change = self._roles.record_set(written, claim)
            if change is not None:
                self._report_holder(written, change)

    def _report_removed(
        self,
        pod: Pod,
        changes: Changes | None,
        claims: Claims,
    ) -> None:
        """Report the removed marks that are written again: another client removed them."""
        removed = self._state.removed.pop(pod.key, None)
        if removed is None or changes is None:
            return
        written = {mark for mark, value in changes.keys.items() if value is not None}
        for condition in changes.conditions:
            mark = Mark("conditions", condition.type)
            written.add(mark)
        for mark in written & removed:
            owner = claims.owners.get(mark)
            if owner is not None:
                change = ForeignChange(pod.key, mark, REMOVED)
                self._state.record_foreign(owner, change)

    def _report_holder(self, written: Pod, change: HolderChange) -> None:
        """Record an event for both pods and the marker."""
        about = [reference_of(written)]
        if change.old is not None:
            about.append(change.old)
        marker = self._state.markers.get(change.marker)
        if marker is not None:
            reference = ObjectReference(
                *marker.key,
                marker.uid,
                MARKERS.api_version,
                MARKERS.kind,
            )
            about.append(reference)
        for involved in about:
            self._recorder.event(involved, "Normal", HOLDER_CHANGED, change.text)

    def _report_labels(self, write: _Write, written: Pod) -> None:
        """Record one event for the labels that were written with another value from the message."""
        pod = write.pod
        texts = []
        for mark, value in write.changes.keys.items():
            label = mark.name
            if mark.field != "labels":
                continue
            if written.labels.get(label) != value:
                continue
            owner = write.claims.owners[mark]
            old = pod.labels.get(label, NO_VALUE)
            new = value or NO_VALUE
            text = f"{owner.name}: {label} {old} → {new}"
            texts.append(text)
        if not texts:
            return
        message = "; ".join(texts)
        self._recorder.event(reference_of(pod), "Normal", LABEL_CHANGED, message)

    def _is_contested(self, write: _Write, written: Pod) -> bool:
        """Whether the response does not show what was sent. Report the admission policy that changes it."""
        contested = not_applied(write.changes, written)
        for mark in contested:
            owner = write.claims.owners.get(mark)
            if owner is not None:
                change = ForeignChange(written.key, mark, ADMISSION)
                self._state.record_foreign(owner, change)
        return bool(contested)

    async def _send(self, write: _Write) -> tuple[Pod, KubeError | None]:
        """Send the changes together, but for those of markers that were refused before. Split what the API server refuses.

        So a refused part affects its own marker only. Return the pod as written, and the error if some parts were refused.

        Raises:
            KubeError: nothing was written, or the error does not depend on the changes.
        """
        pod = write.pod
        known = self._state.refused.of(pod.key)
        parts = split_off(known, write.changes, write.claims)
        waiting = _roles_first(write, parts)
        refused = {}
        written = None
        failure = None
        while waiting:
            changes = waiting.pop(0)
            try:
                written = await self._patch(pod, changes, write.sets)
            except KubeError as error:
                why = refusal(error)
                if not why:
                    raise
                of_markers = parts_of(changes, write.claims)
                if len(of_markers) > 1:
                    waiting = _roles_first(write, of_markers.values()) + waiting
                    continue
                refused.update(dict.fromkeys(of_markers, why))
                failure = error
        self._record_refusals(pod, refused)
        if isinstance(failure, ApiError):
            failure.retry_after_seconds = self._state.refused.pause_seconds(pod.namespace)
        if written is None and failure is not None:
            raise failure
        return written or pod, failure

    async def _patch(
        self,
        pod: Pod,
        changes: Changes,
        sets: Owned,
    ) -> Pod:
        """Write `changes` in one request; with marks in `sets` only to this version of the pod."""
        version = ""
        is_set = not sets.isdisjoint(changes.keys)
        if is_set:
            version = pod.resource_version
            self._fence.begin_set(pod)
        try:
            written = await self._client.patch(
                PODS,
                pod.key,
                encode_patch(pod, changes, version),
                patch_type=PatchType.STRATEGIC_MERGE,
                subresource="status",
            )
        except BaseException:
            if is_set:
                self._fence.fail_set(pod)
            raise
        self._state.informers.pods.record_write(written)
        return written

    def _forget_ended(self, pod: Pod, ended: Owned) -> None:
        """Forget the marks that have been removed, unless more have ended meanwhile."""
        all_ended = self._state.ended
        if all_ended.get(pod.key) is ended:
            del all_ended[pod.key]

    def _record_refusals(self, pod: Pod, refusals: Refusals) -> None:
        """Record refusals; enqueue the markers that report them."""
        state = self._state
        key = pod.key
        if state.refused.of(key) == refusals:
            return
        state.refused.record(key, refusals)
        state.recount(key)
        ending = state.ending.naming(pod.namespace, pod.owned)
        self._queues.enqueue_ending(ending)


def _roles_first(write: _Write, parts: Iterable[Changes]) -> list[Changes]:
    """The version of the pod is a condition for roles, and each other part changes it."""
    return sorted(parts, key=lambda part: write.sets.isdisjoint(part.keys))


def _retry_of(roles: Roles) -> Result | None:
    """When to ask again for a role that an earlier write keeps from the pod."""
    if any(role.is_unsettled for role in roles.values()):
        return Result(ROLE_SECONDS)
    return None
