"""Classifies a status change of a NodePodProbe per pod: a new state, a first result, or only a new message.

A probe that leaves the spec and is added again starts over: its next result is a first result. This holds even if
the status never showed the probe without a result, as the daemon batches changes of 100 ms. So markers in a selector
cycle never get the unlimited writes of state changes.

Source: no counterpart.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from enum import IntEnum
from typing import Final

from kruise_probe.api.v1alpha1 import ContainerProbeState, PodProbe, PodProbeStatus

ProbeOfPod = tuple[str, str]
"""The pod's uid and the probe's name, `<marker>#<probe>`."""

Statuses = Mapping[tuple[str, str, str], PodProbeStatus]
"""By namespace, name and uid of the pod."""

NONE_LEFT: Final[frozenset[ProbeOfPod]] = frozenset()


class ResultChange(IntEnum):
    """The most important change in the results of one pod.

    MESSAGE: only messages changed, or a result was removed. FIRST_RESULT: a probe has its first result. STATE: a
    probe that stayed in the spec changed its state.
    """

    MESSAGE = 0
    FIRST_RESULT = 1
    STATE = 2


def left_spec(
    before: Mapping[str, PodProbe], after: Mapping[str, PodProbe]
) -> frozenset[ProbeOfPod]:
    """The probes that were removed from the spec. Both mappings are by pod uid."""
    left: set[ProbeOfPod] = set()
    for uid, entry in before.items():
        kept = after.get(uid)
        names = {each.name for each in (kept.probes if kept else None) or ()}
        left.update((uid, each.name) for each in entry.probes or () if each.name not in names)
    return frozenset(left)


def result_change(
    before: PodProbeStatus | None, after: PodProbeStatus, left: AbstractSet[ProbeOfPod]
) -> ResultChange | None:
    """Classifies the change on one pod; None if only times changed.

    `left` holds the probes that left the spec since their last result.
    """
    if before is None:
        return ResultChange.FIRST_RESULT if after.probe_states else ResultChange.MESSAGE
    old, new = before.probe_states or (), after.probe_states or ()
    if len(old) == len(new) and not any(map(_differs, old, new)):
        return None
    states = {each.name: each.state for each in old}
    change = ResultChange.MESSAGE
    for each in new:
        state = states.get(each.name)
        if state == each.state:
            continue
        if state is not None and (after.uid, each.name) not in left:
            return ResultChange.STATE
        change = ResultChange.FIRST_RESULT
    return change


def still_left(
    left: AbstractSet[ProbeOfPod], before: Statuses, after: Statuses
) -> frozenset[ProbeOfPod]:
    """The probes of `left` whose published state is unchanged. A changed state was a first result."""
    uids = {uid for uid, _ in left}
    old, new = _states(before, uids), _states(after, uids)
    return frozenset(each for each in left if each in new and old.get(each) == new[each])


def _states(statuses: Statuses, uids: AbstractSet[str]) -> dict[ProbeOfPod, str]:
    return {
        (status.uid, each.name): each.state
        for status in statuses.values()
        if status.uid in uids
        for each in status.probe_states or ()
    }


def _differs(left: ContainerProbeState, right: ContainerProbeState) -> bool:
    return left.state != right.state or left.message != right.message or left.name != right.name
