"""Reconciles the conditions, labels and annotations of one pod. Key: namespace/name.

Source: Kruise pkg/controller/nodepodprobe (Reconcile, updatePodProbeStatus).
Differs: one pod per key instead of one node; a patch instead of an update of the whole object.
"""

import asyncio
import math
from collections.abc import Mapping
from typing import Final, NamedTuple

from prometheus_client import Counter, Histogram

from kruise_probe.api.errors import Conflict, KubeError
from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.pods import NOTHING_OWNED, Mark, Owned, Pod
from kruise_probe.api.resources import MARKERS, PODS
from kruise_probe.client.request import PatchType
from kruise_probe.client.rest import RestClient
from kruise_probe.controllers.claims import Claims, claims_of, marks_of
from kruise_probe.controllers.foreign import ADMISSION, REMOVED, ForeignChange
from kruise_probe.controllers.indexes import ResultsChange
from kruise_probe.controllers.marking import Changes, marking
from kruise_probe.controllers.role_groups import HolderChange
from kruise_probe.controllers.roles import NO_ROLES, Roles, carried, marks_to_set, moves_role
from kruise_probe.controllers.state import Refusals, State
from kruise_probe.controllers.writes import (
    WriteCause,
    cause_of,
    encode_patch,
    not_applied,
    parts_of,
    pod_is_gone,
    refusal,
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
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
_writes_delayed: Final = Counter(
    "kruise_probe_pod_writes_delayed",
    "Reconciles that delayed the write of a pod because its token bucket was empty, by cause.",
    ("cause",),
)


class _Write(NamedTuple):
    """Changes of a pod that may be written now. `sets` are the marks of roles among them."""

    pod: Pod
    claims: Claims
    changes: Changes
    roles: Roles
    sets: Owned
    cause: WriteCause
    pending: ResultsChange | None


class PodReconciler:
    """Writes the marks of pods: one patch per pod and change, or one per part if the API server refuses that."""

    def __init__(self, state: State, client: RestClient, recorder: EventRecorder) -> None:
        self._state, self._queues = state, state.queues
        self._client, self._recorder = client, recorder
        self._limits = state.limits
        self._roles = state.roles

    async def reconcile(self, key: NamespacedName) -> Result | None:
        pod = self._state.pods.get(key)
        if pod is None:  # It may have been deleted during a write, which recorded it again.
            self._limits.forget(key)
            self._state.refusals.pop(key, None)
            return None
        pending = self._limits.pending.get(key)
        ended = self._state.ended.get(key, NOTHING_OWNED)
        markers = self._state.matching.considered_of(pod)
        ending = self._state.ending.selecting(pod)
        claims, results = claims_of(markers), self._state.results_of(pod, markers)
        roles = NO_ROLES
        if claims.exclusive or pod.uid in self._roles.of_pod:
            roles = self._roles.roles_of(pod, claims, results)
        changes = marking(
            pod,
            claims,
            results.states,
            stale=results.why_stale,
            left_out=results.left_out,
            writes_conditions=not results.by_provider,
            edited=pending.edited if pending else (),
            ended=ended.union(*[marks_of(pod, marker) for marker in ending]),
            roles=roles,
            now=self._state.now(),
        )
        self._report_removed(pod, changes, claims)
        if changes is None:
            self._finish(pod, ended)
            self._limits.drop_pending(key, pending)
            return _retry_of(roles)
        cause = cause_of(pod, changes, claims, pending)
        sets = NOTHING_OWNED
        if roles:
            sets = marks_to_set(changes.keys, claims.exclusive, roles)
            if moves_role(changes.keys, claims.exclusive, roles):
                cause = WriteCause.STATE
        wait = self._wait_of(pod, cause, len(claims.claims))
        if wait is not None:
            return wait
        if sets and not self._roles.is_current(pod.namespace):
            await self._roles.make_current(pod.namespace, self._client.list_page)
            return Result(0.0 if self._roles.is_current(pod.namespace) else ROLE_SECONDS)
        write = _Write(pod, claims, changes, roles, sets, cause, pending)
        return await self._apply(write, ended)

    def _wait_of(self, pod: Pod, cause: WriteCause, probes: int) -> Result | None:
        """How long the write is delayed; None if it may be sent now."""
        now = asyncio.get_running_loop().time()
        wait = self._limits.wait_seconds(pod.key, cause, probes=probes, now=now)
        if wait <= 0:
            return None
        _writes_delayed.labels(cause).inc()
        if cause not in (WriteCause.MESSAGE, WriteCause.FINISHED):
            self._state.recount(pod.key)
        return Result(None if wait == math.inf else wait, finished=False)

    async def _apply(self, write: _Write, ended: Owned) -> Result | None:
        """Write it, and record what the API server stored."""
        pod, claims, changes, roles, sets, cause, pending = write
        key = pod.key
        time = asyncio.get_running_loop().time
        try:
            self._state.writing[key] = time()
            written, failure = await self._write(pod, changes, claims, sets)
        except KubeError as error:
            if pod_is_gone(error):
                return None
            if sets and isinstance(error, Conflict):
                return Result(ROLE_SECONDS)
            raise
        finally:
            del self._state.writing[key]
            if roles:
                self._roles.wake_waiting(pod)
        now = time()
        self._limits.drop_pending(key, pending)
        if pending is not None and pending.seen_at is not None:
            _result_to_condition.observe(now - pending.seen_at)
        self._limits.record_write(key, cause, probes=len(claims.claims), now=now)
        if cause in (WriteCause.LABEL, WriteCause.MESSAGE):
            self._report_labels(pod, written, changes, claims)
        if roles:
            self._record_roles(written, claims, sets)
        if failure is not None:
            raise failure
        self._finish(pod, ended)
        return self._recheck(changes, written, claims) or _retry_of(roles)

    def _report_removed(self, pod: Pod, changes: Changes | None, claims: Claims) -> None:
        """Report the removed marks that are written again: another client removed them."""
        removed = self._state.removed.pop(pod.key, None)
        if removed is None or changes is None:
            return
        written: set[Mark] = set()
        for mark, value in changes.keys.items():
            if value is not None:
                written.add(mark)
        for condition in changes.conditions:
            written.add(Mark("conditions", condition.type))
        for mark in written.intersection(removed, claims.owners):
            self._state.record_foreign(claims.owners[mark], ForeignChange(pod.key, mark, REMOVED))

    def _record_roles(self, written: Pod, claims: Claims, sets: Owned) -> None:
        """Record what the API server stored, and report the roles that moved to this pod."""
        self._roles.record_write(written, claims)
        for claim in claims.exclusive:
            if sets.isdisjoint(carried(written, claim)):
                continue
            change = self._roles.record_set(written, claim)
            if change is not None:
                self._report_holder(written, change)

    def _report_holder(self, written: Pod, change: HolderChange) -> None:
        """Record an event for both pods and the marker."""
        about = [ObjectReference(written.namespace, written.name, written.uid)]
        if change.old is not None:
            about.append(ObjectReference(*change.old, change.old_uid))
        marker = self._state.markers.get(change.marker)
        if marker is not None:
            about.append(
                ObjectReference(*marker.key, marker.uid, MARKERS.api_version, MARKERS.kind)
            )
        for involved in about:
            self._recorder.event(involved, "Normal", HOLDER_CHANGED, change.text)

    def _recheck(self, changes: Changes, written: Pod, claims: Claims) -> Result | None:
        """Try again if the response does not show what was sent; report the admission policy that changes it."""
        contested = not_applied(changes, written)
        for mark in contested:
            owner = claims.owners.get(mark)
            if owner is not None:
                self._state.record_foreign(owner, ForeignChange(written.key, mark, ADMISSION))
        return Result(CONTESTED_SECONDS) if contested else None

    async def _write(
        self, pod: Pod, changes: Changes, claims: Claims, sets: Owned
    ) -> tuple[Pod, KubeError | None]:
        """Write the changes. If the API server refuses them, write each part, so that it affects its own marker only.

        `sets` are the marks of roles among them. Return the pod as written, and the error if some parts were refused.

        Raises:
            KubeError: nothing was written, or the error does not depend on the changes.
        """
        try:
            return await self._patch(pod, changes, sets), None
        except KubeError as error:
            why, parts = refusal(error), parts_of(changes, claims)
            if why and len(parts) == 1:
                self._record_refusals(pod, dict.fromkeys(parts, why))
            if not why or len(parts) == 1:
                raise
            return await self._write_parts(pod, parts, sets)

    async def _write_parts(
        self, pod: Pod, parts: Mapping[str, Changes], sets: Owned
    ) -> tuple[Pod, KubeError | None]:
        """Roles go first: the version of the pod is a condition for them, and each other part changes it."""
        refused: dict[str, str] = {}
        written, failure = None, None
        for marker in sorted(parts, key=lambda marker: sets.isdisjoint(parts[marker].keys)):
            try:
                written = await self._patch(pod, parts[marker], sets)
            except KubeError as error:
                why = refusal(error)
                if not why:
                    raise
                refused[marker], failure = why, error
        self._record_refusals(pod, refused)
        if written is None and failure is not None:
            raise failure
        return written or pod, failure

    async def _patch(self, pod: Pod, changes: Changes, sets: Owned) -> Pod:
        """Write `changes` in one request; with marks in `sets` only to this version of the pod."""
        if sets.isdisjoint(changes.keys):
            return await self._send(pod, encode_patch(pod, changes))
        self._roles.begin_set(pod)
        try:
            return await self._send(pod, encode_patch(pod, changes, pod.resource_version))
        except BaseException:
            self._roles.fail_set(pod)
            raise

    async def _send(self, pod: Pod, patch: bytes) -> Pod:
        written = await self._client.patch(
            PODS,
            pod.key,
            patch,
            patch_type=PatchType.STRATEGIC_MERGE,
            subresource="status",
        )
        self._state.informers.pods.record_write(written)
        return written

    def _report_labels(self, pod: Pod, written: Pod, changes: Changes, claims: Claims) -> None:
        """Record one event for the labels that were written with another value from the message."""
        texts: list[str] = []
        for mark, value in changes.keys.items():
            if mark.field == "labels" and written.labels.get(mark.name) == value:
                old = pod.labels.get(mark.name, NO_VALUE)
                texts.append(f"{claims.owners[mark].name}: {mark.name} {old} → {value or NO_VALUE}")
        if texts:
            about = ObjectReference(pod.namespace, pod.name, pod.uid)
            self._recorder.event(about, "Normal", LABEL_CHANGED, "; ".join(texts))

    def _finish(self, pod: Pod, ended: Owned) -> None:
        """Forget refusals, and the marks that have been removed, unless more have ended meanwhile."""
        self._record_refusals(pod, {})
        if self._state.ended.get(pod.key) is ended:
            del self._state.ended[pod.key]

    def _record_refusals(self, pod: Pod, refusals: Refusals) -> None:
        """Record refusals; enqueue the markers that report them."""
        if self._state.refusals.get(pod.key, {}) == refusals:
            return
        self._state.refusals[pod.key] = refusals
        self._state.recount(pod.key)
        ending = self._state.ending.naming(pod.namespace, pod.owned)
        self._queues.enqueue_ending(ending)


def _retry_of(roles: Roles) -> Result | None:
    """When to ask again for a role that an earlier write keeps from the pod."""
    if any(role.is_unsettled for role in roles.values()):
        return Result(ROLE_SECONDS)
    return None
