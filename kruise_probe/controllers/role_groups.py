"""The groups of exclusive probes: who holds each role, in which order pods became Succeeded, and whether a role may be written.

No write of this manager makes two pods of a group carry the marks. A patch that sets them (a *set*)

- is sent only if the cache shows no other pod of the group that carries them,
- and is conditional on the resourceVersion of the pod, so it has no effect once the pod has changed,
- and no pod of the group is set while the cache may lack the effect of a set of another one (`role_fence`).

The removal of marks needs no such care. It counts once the cache shows it: by its response, or by an event.

The state is on the pods: members and holders are computed from them again after a restart; only the order is lost.

Source: no counterpart.
Differs: nothing.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from prometheus_client import Gauge, Histogram

from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.names import ProbeName
from kruise_probe.api.node_pod_probe import PodProbeStatus
from kruise_probe.api.pods import Pod
from kruise_probe.api.times import loop_time
from kruise_probe.api.v1alpha1 import ProbeState
from kruise_probe.controllers.buckets import Buckets
from kruise_probe.controllers.claims import Claim, Claims
from kruise_probe.controllers.compiled import CompiledMarker
from kruise_probe.controllers.marking import PodResults, why_unknown
from kruise_probe.controllers.matching import Matching
from kruise_probe.controllers.node_index import StatusChange
from kruise_probe.controllers.role_fence import RoleFence
from kruise_probe.controllers.roles import (
    MAX_GROUP,
    WAITING_FOR_POD,
    Member,
    Role,
    Standing,
    carried,
    holder_of,
    member_of,
    role_text,
)
from kruise_probe.runtime.recorder import ObjectReference

_handover_seconds: Final = Histogram(
    "kruise_probe_role_handover_seconds",
    "From the decision for another holder of a role to the API server's response to the patch that sets its marks.",
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
_wait_seconds: Final = Gauge(
    "kruise_probe_role_wait_seconds",
    "How long the role that waits longest has had a holder that does not carry its marks yet.",
)


class RoleId(NamedTuple):
    """A role: an exclusive probe, `<marker>#<probe>`, and the value of the label of its group."""

    namespace: str
    probe: str
    value: str

    @property
    def marker(self) -> NamespacedName:
        return NamespacedName(self.namespace, ProbeName.parse(self.probe).marker)


class HolderChange(NamedTuple):
    """A role that moved. `old` is None if no pod carried its marks before."""

    marker: NamespacedName
    text: str
    old: ObjectReference | None


class GroupProblems(NamedTuple):
    """What is wrong with the groups of a marker.

    Attributes:
        too_large: by role and group, the number of pods.
        ungrouped: pods without the label that should tell their group.
    """

    too_large: Mapping[str, int]
    ungrouped: int


class _Group:
    """The pods that may hold one role.

    Attributes:
        members: by uid.
        holder: the uid of the pod that should carry the marks; empty without one.
        carrier: the pod that was set last; None while that is not known.
        waiting: the holder, if others keep it from being set.
        moving_since: since when the holder does not carry the marks; None if it does.
    """

    __slots__ = ("carrier", "has_epochs", "holder", "members", "moving_since", "waiting")

    def __init__(self) -> None:
        self.has_epochs = False
        self.members: Final[dict[str, Member]] = {}
        self.holder = ""
        self.carrier: ObjectReference | None = None
        self.waiting: NamespacedName | None = None
        self.moving_since: float | None = None

    def is_carrier(self, pod: Pod) -> bool:
        return self.carrier is not None and self.carrier.uid == pod.uid


Look = Callable[[Pod], tuple[Claims, PodResults]]
"""Returns the claims on a pod, and its results."""


class RoleGroups:
    """The groups, by role. A pod belongs to them from its first reconcile on; the first one of a group adds all of its pods."""

    def __init__(
        self,
        *,
        fence: RoleFence,
        matching: Matching,
        look: Look,
        refusal_of: Callable[[str, NamespacedName], str],
        enqueue: Callable[[NamespacedName], None],
    ) -> None:
        self._fence = fence
        self._matching = matching
        self._look = look
        self._refusal_of = refusal_of
        self._enqueue = enqueue
        self.markers: Final[set[NamespacedName]] = set()
        """Those with exclusive probes."""
        self.of_pod: Final[Buckets[str, RoleId]] = Buckets()
        """By uid, the roles that the pod may hold."""
        self._groups: dict[RoleId, _Group] = {}
        self._of_probe: Buckets[tuple[str, str], RoleId] = Buckets()
        """The roles of `_groups` by namespace and probe."""
        self._order: dict[str, dict[str, int]] = {}
        """By uid and probe, the number of the event in which the state became Succeeded."""
        self._events = 0
        _wait_seconds.set_function(self._longest_wait)

    def _longest_wait(self) -> float:
        oldest = math.inf
        for group in self._groups.values():
            if group.moving_since is not None:
                oldest = min(oldest, group.moving_since)
        if oldest == math.inf:
            return 0.0
        return loop_time() - oldest

    def index_marker(self, marker: CompiledMarker) -> None:
        """Index a new or changed marker."""
        is_exclusive = any(probe.exclusive is not None for probe in marker.probes)
        if is_exclusive and not marker.deleting:
            self.markers.add(marker.key)
        else:
            self.markers.discard(marker.key)

    def problems_of(self, marker: CompiledMarker) -> GroupProblems:
        """What is wrong with the groups of a marker. Empty if it has no exclusive probe."""
        too_large: dict[str, int] = {}
        ungrouped = 0
        for probe in marker.probes:
            if probe.exclusive is None:
                continue
            label = probe.exclusive.group_label
            for role in self._of_probe.of((marker.key.namespace, probe.name)):
                pods = len(self._groups[role].members)
                if pods > MAX_GROUP:
                    group = f"{label}={role.value}" if label else "all pods"
                    too_large[f"{probe.name} ({group})"] = pods
                if label and not role.value:
                    ungrouped = max(ungrouped, pods)
        return GroupProblems(too_large, ungrouped)

    def observe(self, changes: Iterable[StatusChange]) -> None:
        """Record which states one event changed to Succeeded. What becomes Succeeded in one event has the same order."""
        self._events += 1
        for before, after in changes:
            if after is None:
                if before is not None:
                    self._order.pop(before.uid, None)
                continue
            for name in _succeeded(after) - _succeeded(before):
                marker = NamespacedName(after.namespace, ProbeName.parse(name).marker)
                if marker in self.markers:
                    order = self._order.setdefault(after.uid, {})
                    order[name] = self._events

    def roles_of(
        self,
        pod: Pod,
        claims: Claims,
        results: PodResults,
    ) -> dict[str, Role]:
        """What each exclusive probe means for `pod` now, by name. The pod leaves the groups that it does not belong to."""
        exclusive = {_role_of(pod, claim): claim for claim in claims.exclusive}
        for role in [*self.of_pod.of(pod.uid)]:
            if role not in exclusive:
                self._leave(role, pod.uid)
        roles: dict[str, Role] = {}
        for role, claim in exclusive.items():
            if role not in self._groups:
                self._form(role, claim)
            member = self._member(pod, claim, results)
            self._join(role, member, pod.uid, claim)
            group = self._groups[role]
            roles[claim.name] = self._role(role, group, pod, claim)
        return roles

    def _form(self, role: RoleId, claim: Claim) -> None:
        group = self._groups[role] = _Group()
        self._of_probe.add((role.namespace, role.probe), role)
        for pod in self._pods_of(role, claim):
            claims, results = self._look(pod)
            for other in claims.exclusive:
                if _role_of(pod, other) == role:
                    member = self._member(pod, other, results)
                    group.members[pod.uid] = member
                    self.of_pod.add(pod.uid, role)
                    if member.ours:
                        group.carrier = _reference(pod)

    def _pods_of(self, role: RoleId, claim: Claim) -> list[Pod]:
        marker = self._matching.markers.get(role.marker)
        if marker is None:
            return []
        return self._matching.group_of(marker, claim.group_label, role.value)

    def _member(
        self,
        pod: Pod,
        claim: Claim,
        results: PodResults,
    ) -> Member:
        found = results.states.get(claim.name)
        state = ""
        epoch: int | None = None
        if found is not None:
            state = found.state
            epoch = found.epoch
        if results.by_provider or why_unknown(pod, claim, results) is not None:
            state = ProbeState.UNKNOWN
        order = self._order.get(pod.uid, {}).get(claim.name, 0)
        return member_of(
            pod,
            claim,
            state,
            epoch=epoch,
            order=order,
        )

    def _join(
        self,
        role: RoleId,
        member: Member,
        uid: str,
        claim: Claim,
    ) -> None:
        group = self._groups[role]
        group.has_epochs = claim.exclusive is not None and claim.exclusive.has_epochs
        group.members[uid] = member
        self.of_pod.add(uid, role)
        self._decide(group, asking=member.pod)

    def _leave(self, role: RoleId, uid: str) -> None:
        self.of_pod.discard(uid, role)
        group = self._groups[role]
        left = group.members.pop(uid)
        if group.members:
            self._decide(group, asking=left.pod)
        else:
            del self._groups[role]
            self._of_probe.discard((role.namespace, role.probe), role)

    def forget(self, pod: Pod) -> None:
        """Remove a deleted pod: it carries nothing any more."""
        self._fence.forget(pod)
        self._order.pop(pod.uid, None)
        for role in [*self.of_pod.of(pod.uid)]:
            self._leave(role, pod.uid)

    def _decide(self, group: _Group, *, asking: NamespacedName) -> None:
        """Find the holder; enqueue the old and the new one if it changed, and a holder that waits for another pod."""
        holder = holder_of(group.members, has_epochs=group.has_epochs)
        concerned: set[NamespacedName] = set()
        if holder != group.holder:
            for uid in (holder, group.holder):
                if uid in group.members:
                    concerned.add(group.members[uid].pod)
            group.holder = holder
            group.moving_since = None
        if group.waiting is not None:
            concerned.add(group.waiting)
        for pod in concerned - {asking}:
            self._enqueue(pod)
        found = group.members.get(holder)
        if found is not None and not found.carries:
            if group.moving_since is None:
                group.moving_since = loop_time()
            return
        if found is not None and group.moving_since is not None:
            _handover_seconds.observe(loop_time() - group.moving_since)
        group.moving_since = None

    def _role(
        self,
        role: RoleId,
        group: _Group,
        pod: Pod,
        claim: Claim,
    ) -> Role:
        member = group.members[pod.uid]
        if group.holder != pod.uid:
            return Role(holds=False, moves=member.ours)
        group.waiting = None
        waits = ""
        is_unsettled = False
        for other in self._pods_of(role, claim):
            if other.uid == pod.uid:
                continue
            if carried(other, claim):
                group.waiting = pod.key
                waits = waits or self._why_waiting(role, other, claim)
            elif self._fence.is_unsettled(other):
                group.waiting = pod.key
                is_unsettled = True
        return Role(
            holds=True,
            may_set=group.waiting is None,
            waits="" if member.carries else waits,
            moves=not group.is_carrier(pod),
            is_unsettled=is_unsettled,
        )

    def _why_waiting(
        self,
        role: RoleId,
        other: Pod,
        claim: Claim,
    ) -> str:
        """Empty if it probably takes no longer than a request."""
        why = self._refusal_of(role.marker.name, other.key)
        if other.paused:
            why = "it is paused"
        if not why:
            return ""
        return f"{WAITING_FOR_POD}{other.name} to lose {role_text(claim)}: {why}"

    def wake_waiting(self, pod: Pod) -> None:
        """A write of `pod` failed: enqueue the holders that wait for it, so that they say so."""
        for role in self.of_pod.of(pod.uid):
            waiting = self._groups[role].waiting
            if waiting is not None and waiting != pod.key:
                self._enqueue(waiting)

    def record_write(self, written: Pod, claims: Claims) -> None:
        """Record the response to a patch: which marks the pod carries now."""
        for claim in claims.exclusive:
            role = _role_of(written, claim)
            group = self._groups.get(role)
            known = group.members.get(written.uid) if group is not None else None
            if known is None:  # The patch changed its group.
                self._enqueue(written.key)
                continue
            now = member_of(written, claim, ProbeState.UNKNOWN)
            standing = known.standing
            if standing in (Standing.KEEPS, Standing.PAUSED):
                standing = now.standing
            member = known._replace(carries=now.carries, ours=now.ours, standing=standing)
            self._join(role, member, written.uid, claim)

    def record_set(self, written: Pod, claim: Claim) -> HolderChange | None:
        """Record that `written` carries the marks of a role now. Return the change, if another pod did or none."""
        role = _role_of(written, claim)
        group = self._groups.get(role)
        if group is None or group.is_carrier(written):
            return None
        old = group.carrier
        group.carrier = _reference(written)
        from_name = old.name if old is not None else "(none)"
        text = f"{claim.name}: {role_text(claim)} {from_name} → {written.name}"
        epoch = group.members[written.uid].epoch
        if epoch is not None:
            text += f" (epoch {epoch})"
        return HolderChange(role.marker, text, old)


def _succeeded(status: PodProbeStatus | None) -> set[str]:
    """The names of the probes that are Succeeded."""
    if status is None:
        return set()
    states = status.probe_states
    return {state.name for state in states if state.state == ProbeState.SUCCEEDED}


def _role_of(pod: Pod, claim: Claim) -> RoleId:
    value = pod.labels.get(claim.group_label, "")  # none has the empty label
    return RoleId(pod.namespace, claim.name, value)


def _reference(pod: Pod) -> ObjectReference:
    return ObjectReference(pod.namespace, pod.name, pod.uid)
