"""Computes the changes of conditions, labels and annotations (marks) that a pod needs to show its newest results.

A pure function of the pod, the claims on it and the states of its probes. It does not depend on the order of events,
and it is idempotent: a pod with the changes applied needs no change.

- Succeeded is True, Failed is False, Unknown is Unknown. The policy of the state is applied. Keys that only policies
  of other states name are removed, even if we did not write them. Without a policy for it, Unknown changes no marks.
- A value from the message (`fromMessage`) that is missing or invalid is replaced by the static value of the key. If the
  daemon shortened the message for lack of room, the key keeps its value.
- Without a recorded state nothing changes.
- Our marks without an owner are removed. So is a value that its owner never writes: it comes from a marker that
  matched before, or from an older policy.
- A condition that a readiness gate needs keeps its status, with reason `ProbeRemoved`. So deleting a marker makes no
  pod unready. A reserved condition of an older manager stays: its controller would undo each of our writes.
- While the results of the node are stale, conditions are Unknown with reason `ProbeDaemonStale`, and the policy for
  Unknown is applied without a message. This includes our conditions and marks without a recorded state; they stay
  Unknown until there is a state again.
  A probe with `whenStale: Keep` keeps its last state.
- In a finished pod, and for a container that ended and is not restarted, our conditions are Unknown with reason `PodFinished`
  or `ContainerFinished`, and the policy for Unknown is applied.
- A terminating pod keeps its marks, except for the reasons above and for probes with `whenTerminating: Probe`.
- A probe that a limit leaves out (`limits`) is Unknown with the limit's reason, whatever the last state.
- Of the pods of an exclusive probe, only the holder of the role has the marks of Succeeded (`roles`). Another pod that is
  Succeeded has reason `NotHolder` and the marks of Failed.
- A paused probe has no result: its condition gets reason `ProbePaused` until the next one, and its marks are kept.
- A difference in `lastProbeTime` only is no change, but the first result of an edited probe writes its condition once.

Source: Kruise pkg/controller/nodepodprobe (updatePodProbeStatus).
Differs: Unknown is not False; Kruise has no ownership, no removal of stale marks and no staleness.
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Final, NamedTuple

from msgspec.structs import replace

from kruise_probe.api.extraction import FromMessage, value_of
from kruise_probe.api.messages import normalise_message
from kruise_probe.api.names import (
    REASON_CONTAINER_FINISHED,
    REASON_DAEMON_STALE,
    REASON_NOT_HOLDER,
    REASON_PAUSED,
    REASON_POD_FINISHED,
    REASON_PROBE_REMOVED,
    ProbeName,
)
from kruise_probe.api.node_pod_probe import ContainerProbeState
from kruise_probe.api.pods import (
    NOTHING_OWNED,
    ConditionLookup,
    Mark,
    Owned,
    Pod,
    PodCondition,
)
from kruise_probe.api.reserved import reserved_condition_error
from kruise_probe.api.times import format_time, parse_time
from kruise_probe.api.v1alpha1 import ProbeState
from kruise_probe.controllers.claims import Claim, Claims
from kruise_probe.controllers.compiled import Wanted
from kruise_probe.controllers.limits import NOTHING_LEFT_OUT, LeftOut
from kruise_probe.controllers.roles import NO_ROLES, Role, Roles, wanted_in

CONDITION_STATUS: Final = {
    ProbeState.SUCCEEDED.value: "True",
    ProbeState.FAILED.value: "False",
    ProbeState.UNKNOWN.value: "Unknown",
}

States = Mapping[str, ContainerProbeState]
"""By the name of the probe, `<marker>#<probe>`."""

_STATE_OF_STATUS: Final = {"True": ProbeState.SUCCEEDED, "False": ProbeState.FAILED}

_NO_STATE: Final = ContainerProbeState(name="", state=ProbeState.UNKNOWN.value)


class PodResults(NamedTuple):
    """What is known of the results of a pod.

    Attributes:
        states: the recorded states of its probes.
        why_stale: why they are stale, or empty.
        is_doubted: they are probably stale, so marks and conditions stay as they are.
        by_provider: a serverless provider runs the probes and writes the conditions.
        left_out: why probes are left out, by the name of their marker or their own.
    """

    states: States = MappingProxyType({})
    why_stale: str = ""
    is_doubted: bool = False
    by_provider: bool = False
    left_out: Mapping[str, LeftOut] = NOTHING_LEFT_OUT

    def limit_of(self, claim: Claim) -> LeftOut | None:
        if not self.left_out:  # the common case
            return None
        marker = ProbeName.parse(claim.name).marker
        left_out = self.left_out
        return left_out.get(marker) or left_out.get(claim.name)


class WhyUnknown(NamedTuple):
    """The reason and the message of a condition that is Unknown for a reason of the manager."""

    reason: str
    message: str


class Changes(NamedTuple):
    """The changes to write: labels and annotations, which None removes, conditions, and `deleted` conditions to remove.

    `conditions` are complete, except that a `last_transition_time` of None leaves it unchanged.
    """

    keys: dict[Mark, str | None]
    conditions: list[PodCondition]
    deleted: list[str]


def marking(
    pod: Pod,
    claims: Claims,
    results: PodResults,
    *,
    edited: Collection[str] = (),
    ended: Owned = NOTHING_OWNED,
    roles: Roles = NO_ROLES,
    now: datetime,
) -> Changes | None:
    """The changes that `pod` needs, or None. A static pod is never written.

    `claims` are those on the pod. `edited` names the probes whose condition is written even if it is equal.
    `ended` are marks of markers that do not write them any more. `roles` has each exclusive probe.
    """
    if pod.mirror:
        return None
    changes = Changes({}, [], [])
    condition_of = pod.condition_lookup()
    for claim in claims.claims:
        if pod.paused or claim.paused:
            if pod.active and not results.by_provider:
                current = condition_of(claim.condition_type)
                _mark_paused(pod, claim, current, changes)
            continue
        if pod.finished and results.by_provider:
            continue
        state, why = _shown(pod, claim, results)
        role = roles.get(claim.name)
        if state is not None and claim.condition_type and not results.by_provider:
            current = condition_of(claim.condition_type)
            condition = _condition(current, claim, state, why, role, now)
            is_edited = claim.name in edited and why is None
            if is_edited or not same_condition(current, condition):
                changes.conditions.append(condition)
        wanted = _wanted(pod, claim, state, role)
        for mark, value, _ in values_of(wanted, state):
            if pod.value_of(mark) != value:
                changes.keys[mark] = value
    _remove_stale_marks(pod, claims, ended, condition_of, changes)
    return changes if any(changes) else None


def may_change(pod: Pod, results: PodResults) -> bool:
    """Whether any claims could need changes of `pod`, apart from roles and ended marks.

    Without marks of ours, results and limits there is nothing to write or to remove.
    """
    if pod.owned or pod.merged:
        return True
    return bool(results.states) or bool(results.left_out)


def _shown(
    pod: Pod,
    claim: Claim,
    results: PodResults,
) -> tuple[ContainerProbeState | None, WhyUnknown | None]:
    """The state that condition and marks show, None for no change; and why it is Unknown, if that is a reason of ours.

    Then it has no message, and our conditions and marks without a recorded state are Unknown too.
    """
    recorded = results.states.get(claim.name)
    if recorded is not None and recorded.state not in CONDITION_STATUS:
        recorded = None
    why = None
    if not results.by_provider:
        why = why_unknown(pod, claim, results)
    if results.limit_of(claim) is not None:
        return _NO_STATE, why
    if why is None:
        if pod.deleting and not claim.runs_while_terminating:
            return None, None
        return recorded, None
    if is_only_doubted(why, results):
        return None, None
    if recorded is not None and pod.active:
        unknown = replace(_NO_STATE, last_probe_time=recorded.last_probe_time)
        return unknown, why
    if _owns_any(pod, claim):
        return _NO_STATE, why
    return None, why


def why_unknown(
    pod: Pod,
    claim: Claim,
    results: PodResults,
) -> WhyUnknown | None:
    """Why the state is Unknown, whatever the node reported last; None if that counts."""
    if pod.finished:
        return WhyUnknown(REASON_POD_FINISHED, f"The pod has finished ({pod.phase}).")
    if claim.container in pod.exit_codes:
        exit_code = pod.exit_codes[claim.container]
        return WhyUnknown(REASON_CONTAINER_FINISHED, f"exit code {exit_code}")
    limit = results.limit_of(claim)
    if limit is not None:
        return WhyUnknown(limit.reason, limit.message)
    if results.why_stale and not claim.keeps_when_stale:
        return WhyUnknown(REASON_DAEMON_STALE, results.why_stale)
    return None


def is_only_doubted(why: WhyUnknown | None, results: PodResults) -> bool:
    """Whether a state is Unknown only because the daemon is doubted."""
    return results.is_doubted and why is not None and why.reason == REASON_DAEMON_STALE


def _condition(
    current: PodCondition | None,
    claim: Claim,
    state: ContainerProbeState,
    why: WhyUnknown | None,
    role: Role | None,
    now: datetime,
) -> PodCondition:
    """The condition that the pod should have."""
    status = CONDITION_STATUS[state.state]
    reason = ""
    message = state.message or ""
    if why is not None:
        reason = why.reason
        message = why.message
    elif status == "True" and role is not None and role.is_withheld:
        reason = REASON_NOT_HOLDER
        message = role.waiting_message or message
    probe_time = None
    probed_at = parse_time(state.last_probe_time)
    if probed_at is not None:  # a malformed time would make the patch invalid
        probe_time = format_time(probed_at)
    since = None
    if current is None or current.status != status:
        since = _transition_time(current, state, now)
    return PodCondition(
        type=claim.condition_type,
        status=status,
        reason=reason,
        message=message,
        last_probe_time=probe_time,
        last_transition_time=since,
    )


def _transition_time(
    current: PodCondition | None,
    state: ContainerProbeState,
    now: datetime,
) -> str:
    """When the node observed the transition; `now` if the condition has a later transition time."""
    seen_at = parse_time(state.last_transition_time)
    if seen_at is None:
        return format_time(now)
    if current is not None:
        moved_at = parse_time(current.last_transition_time)
        if moved_at is not None and seen_at < moved_at:
            return format_time(now)
    return format_time(seen_at)


def same_condition(
    current: PodCondition | None,
    wanted: PodCondition,
    *,
    but_message: bool = False,
) -> bool:
    """Whether both have the same status and texts, `but_message` not. A difference in `lastProbeTime` only is no change."""
    if current is None:
        return False
    if current.status != wanted.status:
        return False
    if (current.reason or "") != (wanted.reason or ""):
        return False
    if but_message:
        return True
    return (current.message or "") == (wanted.message or "")


def _wanted(
    pod: Pod,
    claim: Claim,
    state: ContainerProbeState | None,
    role: Role | None,
) -> Wanted:
    """The labels and annotations of `pod`; a role decides also without a state."""
    name = ""
    if state is not None:
        name = state.state
    if role is not None:
        return wanted_in(role, claim, pod, name)
    return claim.wanted.get(name, {})


class Value(NamedTuple):
    """The value that a key should have, None if it must be absent. `invalid`: the message has no valid value for it."""

    mark: Mark
    value: str | None
    invalid: FromMessage | None = None


def values_of(wanted: Wanted, result: ContainerProbeState | None) -> list[Value]:
    """The values of `wanted` for this result; None has no message. Keys of a shortened message are left out."""
    values = []
    for mark, source in wanted.items():
        if not isinstance(source, FromMessage):
            values.append(Value(mark, source))
            continue
        message = ""
        if result is not None:
            if result.message_shortened:
                continue
            # Providers and Kruise's daemon do not normalise their messages.
            message = normalise_message(result.message or "")
        found = value_of(mark, source, message)
        if found is None:
            values.append(Value(mark, source.static, invalid=source))
        else:
            values.append(Value(mark, found))
    return values


def stale_message_of(pod: Pod) -> str:
    """Why the results of the pod's node are stale, as a condition that we wrote says; or an empty string."""
    for condition in pod.conditions:
        if condition.reason != REASON_DAEMON_STALE:
            continue
        if _owns_condition(pod, condition.type):
            return condition.message or ""
    return ""


def _owns_any(pod: Pod, claim: Claim) -> bool:
    """Whether we wrote the condition of the claim, or a mark that its policy for Unknown changes."""
    if _owns_condition(pod, claim.condition_type):
        return True
    unknown = claim.wanted.get(ProbeState.UNKNOWN, {})
    return not pod.owned.isdisjoint(unknown)


def _owns_condition(pod: Pod, type: str) -> bool:
    """Whether we wrote this condition; also if the API server has merged our entry into that of old managers."""
    mark = Mark("conditions", type)
    return mark in pod.owned or mark in pod.merged


def _mark_paused(
    pod: Pod,
    claim: Claim,
    current: PodCondition | None,
    changes: Changes,
) -> None:
    """Set the reason of our condition of a paused probe."""
    if current is None or current.reason == REASON_PAUSED:
        return
    if _owns_condition(pod, claim.condition_type):
        changes.conditions.append(_with_reason(current, REASON_PAUSED))


def _with_reason(current: PodCondition, reason: str) -> PodCondition:
    """The condition with another reason and the same transition time."""
    return replace(current, reason=reason, last_transition_time=None)


def _remove_stale_marks(
    pod: Pod,
    claims: Claims,
    ended: Owned,
    condition_of: ConditionLookup,
    changes: Changes,
) -> None:
    """Remove our marks, `ended` among them, that no live marker of the pod would write."""
    ours = pod.owned | (ended - pod.owned_by_others)
    for mark in sorted(ours):
        owner = claims.owners.get(mark)
        if mark.field == "conditions":
            if owner is None:
                current = condition_of(mark.name)
                _remove_condition(pod, current, changes)
            continue
        value = pod.value_of(mark)
        if value is None:
            continue
        if mark in changes.keys:
            continue
        if owner is not None:
            if pod.paused or owner.paused:
                continue
            if owner.may_write(mark, value):
                continue
        changes.keys[mark] = None


def _remove_condition(
    pod: Pod,
    current: PodCondition | None,
    changes: Changes,
) -> None:
    if current is None:
        return
    type = current.type
    if type not in pod.readiness_gates:
        changes.deleted.append(type)
    elif current.reason != REASON_PROBE_REMOVED and not reserved_condition_error(type):
        changes.conditions.append(_with_reason(current, REASON_PROBE_REMOVED))


def states_of_conditions(pod: Pod, claims: Claims) -> States:
    """Convert the conditions that the provider wrote into probe states."""
    states = {}
    condition_of = pod.condition_lookup()
    for claim in claims.claims:
        condition = condition_of(claim.condition_type)
        if condition is None:
            continue
        states[claim.name] = ContainerProbeState(
            name=claim.name,
            state=_STATE_OF_STATUS.get(condition.status, ProbeState.UNKNOWN),
            last_probe_time=condition.last_probe_time,
            last_transition_time=condition.last_transition_time,
            message=condition.message,
        )
    return states
