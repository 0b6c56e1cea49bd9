"""What has to change on one pod so that it shows the newest results. The heart of the product.

A function of the pod, the claims on it and the states of its probes: the same input gives the same answer
in whatever order things happened, and a pod that has been changed accordingly needs no change.

- Succeeded is True, Failed is False, Unknown is Unknown. The policy of Succeeded or Failed is applied, keys that
  only the other one names are removed, whoever wrote them. Unknown leaves marks alone.
- No state yet (not started, not initialised, moving): everything stays as it is.
- What we wrote and nobody claims any more is removed, and so is a value that its owner never writes: it is left of
  a marker that matched before, or of an older policy. A condition that a readiness gate waits for stays with
  its status, reason `ProbeRemoved`, so that deleting a marker takes no pod out of service. A reserved one that an
  older manager wrote stays as it is: the controller that owns it would write it again after each of our writes.
- While the node's agent is silent, conditions are Unknown with reason `ProbeAgentStale` and marks are kept; those that we
  wrote also where no state is recorded any more, and they stay so until there is one again.
- The condition of a probe that a limit leaves out (`limits`) is Unknown with the limit's reason, whatever was recorded
  before. Marks are kept.
- A difference in `lastProbeTime` only is no change.

Source: Kruise pkg/controller/nodepodprobe (updatePodProbeStatus).
Differs: Unknown is not False; ownership, residue and staleness do not exist there.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final, NamedTuple

from kruise_probe.api.keys import ProbeName
from kruise_probe.api.names import REASON_AGENT_STALE, REASON_PROBE_REMOVED
from kruise_probe.api.pods import NOTHING_OWNED, Pod, PodCondition
from kruise_probe.api.reserved import condition_reserved
from kruise_probe.api.times import format_time, parse_time
from kruise_probe.api.v1alpha1 import ContainerProbeState, ProbeState
from kruise_probe.controllers.limits import NOTHING_LEFT_OUT, LeftOut
from kruise_probe.controllers.pods.claims import Claim, Claims, Targets, claims_on

CONDITION_STATUS: Final = {
    ProbeState.SUCCEEDED.value: "True",
    ProbeState.FAILED.value: "False",
    ProbeState.UNKNOWN.value: "Unknown",
}

States = Mapping[str, ContainerProbeState]
"""By the name of the probe, `<marker>#<probe>`."""

_NO_STATE: Final = ContainerProbeState(name="", state=ProbeState.UNKNOWN.value)


class Changes(NamedTuple):
    """What to write: None removes a label or an annotation, `deleted` names conditions to remove.

    `conditions` are complete, but a `last_transition_time` of None means that it does not move.
    """

    labels: dict[str, str | None]
    annotations: dict[str, str | None]
    conditions: list[PodCondition]
    deleted: list[str]

    def __bool__(self) -> bool:
        return bool(self.labels or self.annotations or self.conditions or self.deleted)


def marking(
    pod: Pod,
    claims: Claims,
    states: States,
    *,
    stale: str = "",
    left_out: Mapping[str, LeftOut] = NOTHING_LEFT_OUT,
    writes_conditions: bool = True,
    now: datetime,
) -> Changes | None:
    """What to change on `pod`, or None.

    `states` are the recorded states of this pod's probes. `stale` says why they are no longer to be trusted,
    for the message; it is empty when they are. `left_out` says which limit leaves out the probes of a marker, by its name.
    `writes_conditions` is False where somebody else writes them (serverless providers).
    """
    changes = Changes({}, {}, [], [])
    claims = claims_on(pod, claims)
    if states or stale or left_out:
        _apply_states(pod, claims, states, stale, left_out, writes_conditions, now, changes)
    if pod.owned is not NOTHING_OWNED:
        _remove_residue(pod, claims, changes)
    return changes or None


def _apply_states(
    pod: Pod,
    claims: Claims,
    states: States,
    stale: str,
    left_out: Mapping[str, LeftOut],
    writes_conditions: bool,
    now: datetime,
    changes: Changes,
) -> None:
    for claim in claims.claims:
        limit = left_out.get(ProbeName.parse(claim.name).marker) if left_out else None
        why_unknown = (REASON_AGENT_STALE, stale) if stale else None
        if limit is not None:
            why_unknown = limit.reason, limit.message
        state = _NO_STATE if limit else _state(pod, claim, states, stale)
        if state is None:
            continue
        if claim.condition_type and writes_conditions:
            condition = _condition(pod, claim.condition_type, state, why_unknown, now)
            if condition is not None:
                changes.conditions.append(condition)
        targets = None if why_unknown else claim.targets.get(state.state)
        if targets is not None:
            _apply_targets(pod, targets, changes)


def _apply_targets(pod: Pod, targets: Targets, changes: Changes) -> None:
    for key, value in targets.labels:
        if pod.labels.get(key) != value:
            changes.labels[key] = value
    for key, value in targets.annotations:
        if pod.annotations.get(key) != value:
            changes.annotations[key] = value


def _state(pod: Pod, claim: Claim, states: States, stale: str) -> ContainerProbeState | None:
    """The recorded state; none at all is one too for a condition of ours that nobody vouches for any more."""
    state = states.get(claim.name)
    if state is not None and state.state in CONDITION_STATUS:
        return state
    return _NO_STATE if stale and claim.condition_type in pod.owned.condition_types else None


def _condition(
    pod: Pod,
    condition_type: str,
    state: ContainerProbeState,
    why_unknown: tuple[str, str] | None,
    now: datetime,
) -> PodCondition | None:
    """The condition to write, or None when it says the same already. `why_unknown` is a reason and a message."""
    status, reason, message = CONDITION_STATUS[state.state], "", state.message or ""
    if why_unknown is not None:
        status, (reason, message) = "Unknown", why_unknown
    current = pod.condition(condition_type)
    if (
        current is not None
        and current.status == status
        and (current.reason or "") == reason
        and (current.message or "") == message
    ):
        return None
    return PodCondition(
        type=condition_type,
        status=status,
        reason=reason,
        message=message,
        last_probe_time=_canonical(state.last_probe_time),
        last_transition_time=(
            None
            if current is not None and current.status == status
            else format_time(now)
            if why_unknown
            else _transition_time(current, state, now)
        ),
    )


def _canonical(stamp: str | None) -> str | None:
    """As the API server writes it: what it would refuse costs this stamp, and no more than that."""
    at = parse_time(stamp)
    return None if at is None else format_time(at)


def _transition_time(
    current: PodCondition | None, state: ContainerProbeState, now: datetime
) -> str:
    """When the node saw the transition, unless the condition says that it moved later than that."""
    seen_at = parse_time(state.last_transition_time)
    moved_at = parse_time(current.last_transition_time) if current is not None else None
    if seen_at is None or (moved_at is not None and seen_at < moved_at):
        seen_at = now
    return format_time(seen_at)


def _remove_residue(pod: Pod, claims: Claims, changes: Changes) -> None:
    """Takes away what we wrote and no live marker that matches the pod would write."""
    owned = pod.owned
    for key in owned.labels & pod.labels.keys() - changes.labels.keys():
        owner = claims.labels.get(key)
        if owner is None or not owner.writes_label(key, pod.labels[key]):
            changes.labels[key] = None
    for key in owned.annotations & pod.annotations.keys() - changes.annotations.keys():
        owner = claims.annotations.get(key)
        if owner is None or not owner.writes_annotation(key, pod.annotations[key]):
            changes.annotations[key] = None
    for condition_type in sorted(owned.condition_types - claims.condition_types.keys()):
        current = pod.condition(condition_type)
        if current is None:
            continue
        if condition_type not in pod.readiness_gates:
            changes.deleted.append(condition_type)
        elif current.reason != REASON_PROBE_REMOVED and not condition_reserved(condition_type):
            changes.conditions.append(
                PodCondition(
                    type=condition_type,
                    status=current.status,
                    reason=REASON_PROBE_REMOVED,
                    message=current.message,
                    last_probe_time=current.last_probe_time,
                )
            )
