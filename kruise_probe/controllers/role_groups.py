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

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from prometheus_client import Gauge, Histogram

from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.names import CODE_WAITING_FOR_POD
from kruise_probe.api.node_pod_probe import PodProbeStatus
from kruise_probe.api.pods import Pod
from kruise_probe.api.times import loop_time
from kruise_probe.api.v1alpha1 import ProbeState
from kruise_probe.controllers.buckets import Buckets
from kruise_probe.controllers.claims import Claim, Claims
from kruise_probe.controllers.compiled import CompiledMarker, key_of_marker
from kruise_probe.controllers.marking import PodResults, is_only_doubted, why_unknown
from kruise_probe.controllers.matching import Matching
from kruise_probe.controllers.node_index import StatusChange
from kruise_probe.controllers.role_fence import RoleFence
from kruise_probe.controllers.roles import (
    MAX_GROUP,
    Member,
    Role,
    Standing,
    carried,
    holder_of,
    member_of,
    role_text,
)
from kruise_probe.runtime.recorder import ObjectReference

WRITE_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Seconds from a decision, or an event, to the response to the patch of a pod."""

_handover_seconds: Final = Histogram(
    "kruise_probe_role_handover_seconds",
    "From the decision for another holder of a role to the API server's response to the patch that sets its marks.",
    buckets=WRITE_BUCKETS,
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
        return key_of_marker(self.namespace, self.probe)


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
        self.members: dict[str, Member] = {}
        self.holder = ""
        self.carrier: ObjectReference | None = None
        self.waiting: NamespacedName | None = None
        self.moving_since: float | None = None

    def is_carrier(self, pod: Pod) -> bool:
        if self.carrier is None:
            return False
        return self.carrier.uid == pod.uid


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
        self.markers: set[NamespacedName] = set()
        """Those with exclusive probes."""
        self.of_pod = Buckets[str, RoleId]()
        """By uid, the roles that the pod may hold."""
        self._groups: dict[RoleId, _Group] = {}
        self._of_probe = Buckets[tuple[str, str], RoleId]()
        """The roles of `_groups` by namespace and probe."""
        self._order: dict[str, dict[str, int]] = {}
        """By uid and probe, the number of the event in which the state became Succeeded."""
        self._events = 0
        _wait_seconds.set_function(self._longest_wait)

    def _longest_wait(self) -> float:
        groups = self._groups.values()
        moving = [group.moving_since for group in groups if group.moving_since is not None]
        if not moving:
            return 0.0
        return loop_time() - min(moving)

    def index_marker(self, marker: CompiledMarker) -> None:
        """Index a new or changed marker."""
        roles = [probe for probe in marker.probes if probe.exclusive is not None]
        if roles and not marker.deleting:
            self.markers.add(marker.key)
        else:
            self.markers.discard(marker.key)

    def problems_of(self, marker: CompiledMarker) -> GroupProblems:
        """What is wrong with the groups of a marker. Empty if it has no exclusive probe."""
        namespace = marker.key.namespace
        too_large = {}
        ungrouped = 0
        for probe in marker.probes:
            if probe.exclusive is None:
                continue
            label = probe.exclusive.group_label
            for role in self._of_probe.of((namespace, probe.name)):
                group = self._groups[role]
                pods = len(group.members)
                if pods > MAX_GROUP:
                    text = f"{label}={role.value}" if label else "all pods"
                    name = f"{probe.name} ({text})"
                    too_large[name] = pods
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
            names = _succeeded(after) - _succeeded(before)
            for name in names:
                marker = key_of_marker(after.namespace, name)
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
        before = [*self.of_pod.of(pod.uid)]
        for role in before:
            if role not in exclusive:
                self._leave(role, pod.uid)
        roles = {}
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
        probe = (role.namespace, role.probe)
        self._of_probe.add(probe, role)
        for pod in self._pods_of(role, claim):
            claims, results = self._look(pod)
            for other in claims.exclusive:
                if _role_of(pod, other) != role:
                    continue
                member = self._member(pod, other, results)
                group.members[pod.uid] = member
                self.of_pod.add(pod.uid, role)
                if member.ours:
                    group.carrier = reference_of(pod)

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
        epoch = None
        if found is not None:
            state = found.state
            epoch = found.epoch
        why = why_unknown(pod, claim, results)
        # While its daemon is doubted, a pod that carries the marks keeps them.
        is_kept = is_only_doubted(why, results) and bool(carried(pod, claim))
        if results.by_provider or (why is not None and not is_kept):
            state = ProbeState.UNKNOWN
        orders = self._order.get(pod.uid, {})
        order = orders.get(claim.name, 0)
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
        group.has_epochs = claim.has_epochs
        group.members[uid] = member
        self.of_pod.add(uid, role)
        self._decide(group, asking=member.pod)

    def _leave(self, role: RoleId, uid: str) -> None:
        self.of_pod.discard(uid, role)
        group = self._groups[role]
        left = group.members.pop(uid)
        if group.members:
            self._decide(group, asking=left.pod)
            return
        del self._groups[role]
        probe = (role.namespace, role.probe)
        self._of_probe.discard(probe, role)

    def forget(self, pod: Pod) -> None:
        """Remove a deleted pod: it carries nothing any more."""
        self._fence.forget(pod)
        self._order.pop(pod.uid, None)
        for role in [*self.of_pod.of(pod.uid)]:
            self._leave(role, pod.uid)

    def _decide(self, group: _Group, *, asking: NamespacedName) -> None:
        """Find the holder; enqueue the old and the new one if it changed, and a holder that waits for another pod."""
        holder = holder_of(group.members, has_epochs=group.has_epochs)
        concerned = set()
        if holder != group.holder:
            for uid in (holder, group.holder):
                member = group.members.get(uid)
                if member is not None:
                    concerned.add(member.pod)
            group.holder = holder
            group.moving_since = None
        if group.waiting is not None:
            concerned.add(group.waiting)
        for pod in concerned - {asking}:
            self._enqueue(pod)
        self._observe_move(group)

    def _observe_move(self, group: _Group) -> None:
        """Record how long the holder waits for its marks."""
        now = loop_time()
        since = group.moving_since
        group.moving_since = None
        holder = group.members.get(group.holder)
        if holder is None:
            return
        if holder.carries:
            if since is not None:
                seconds = now - since
                _handover_seconds.observe(seconds)
            return
        if since is None:
            since = now
        group.moving_since = since

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
        waiting_message = ""
        is_unsettled = False
        for other in self._pods_of(role, claim):
            if other.uid == pod.uid:
                continue
            if carried(other, claim):
                group.waiting = pod.key
                waiting_message = waiting_message or self._waiting_message(role, other, claim)
            elif self._fence.is_unsettled(other):
                group.waiting = pod.key
                is_unsettled = True
        if member.carries:
            waiting_message = ""
        return Role(
            holds=True,
            may_set=group.waiting is None,
            waiting_message=waiting_message,
            moves=not group.is_carrier(pod),
            is_unsettled=is_unsettled,
        )

    def _waiting_message(
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
        marks = role_text(claim)
        return f"{CODE_WAITING_FOR_POD}: waiting for pod {other.name} to lose {marks}: {why}"

    def wake_waiting(self, pod: Pod) -> None:
        """A write of `pod` failed: enqueue the holders that wait for it, so that they say so."""
        for role in self.of_pod.of(pod.uid):
            waiting = self._groups[role].waiting
            if waiting is None:
                continue
            if waiting != pod.key:
                self._enqueue(waiting)

    def record_write(self, written: Pod, claims: Claims) -> None:
        """Record the response to a patch: which marks the pod carries now."""
        for claim in claims.exclusive:
            uid = written.uid
            role = _role_of(written, claim)
            if role not in self.of_pod.of(uid):  # The patch changed its group.
                self._enqueue(written.key)
                continue
            group = self._groups[role]
            known = group.members[uid]
            now = member_of(written, claim, ProbeState.UNKNOWN)
            member = known._replace(carries=now.carries, ours=now.ours)
            if known.standing in (Standing.KEEPS, Standing.PAUSED):
                member = member._replace(standing=now.standing)
            self._join(role, member, uid, claim)

    def record_set(self, written: Pod, claim: Claim) -> HolderChange | None:
        """Record that `written` carries the marks of a role now. Return the change, if another pod did or none."""
        role = _role_of(written, claim)
        group = self._groups.get(role)
        if group is None:
            return None
        if group.is_carrier(written):
            return None
        old = group.carrier
        group.carrier = reference_of(written)
        old_name = "(none)"
        if old is not None:
            old_name = old.name
        marks = role_text(claim)
        text = f"{claim.name}: {marks} {old_name} → {written.name}"
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


def reference_of(pod: Pod) -> ObjectReference:
    """The pod as the object of an event."""
    return ObjectReference(pod.namespace, pod.name, pod.uid)
