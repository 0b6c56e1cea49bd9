"""Which decisions an update of a pod may change, while the same markers are considered for it. Pure functions.

Most updates of pods change nothing that the manager reads: resource versions, other clients' annotations, statuses of containers.
They enqueue nothing. What is compared here are the fields that the decision functions read: `plan` for the entry, `marking` for
the marks; `counts` reads what both read.

Source: controller-runtime pkg/predicate.
Differs: one function of both versions for all reconcilers, instead of a predicate for each.
"""

from operator import attrgetter
from typing import NamedTuple

from kruise_probe.api.pods import Mark, Owned, Pod
from kruise_probe.controllers.claims import Claims


class PodChange(NamedTuple):
    """What may differ: the entry in the NodePodProbe, the marks. Either may change the counts of the pod's markers."""

    entry: bool
    marks: bool


_read_for_both = attrgetter("node", "deleting", "mirror", "initialized", "containers", "paused")
_read_for_entry = attrgetter("ip", "started")
_read_for_marks = attrgetter("exit_codes", "readiness_gates", "owned", "merged")


def change_of(
    old: Pod,
    new: Pod,
    claims: Claims,
) -> PodChange:
    """`claims` are those of both versions."""
    if _changes_both(old, new):
        return PodChange(entry=True, marks=True)
    entry = _read_for_entry(old) != _read_for_entry(new)
    if _read_for_marks(old) != _read_for_marks(new):
        return PodChange(entry, marks=True)
    for mark in changed_values(old, new):
        is_claimed = mark in claims.owners or mark in claims.groups
        if is_claimed or mark in new.owned:
            return PodChange(entry, marks=True)
    return PodChange(entry, marks=False)


def changes_entry(old: Pod, new: Pod) -> bool:
    """Whether the entry in the NodePodProbe may differ."""
    return _changes_both(old, new) or _read_for_entry(old) != _read_for_entry(new)


def _changes_both(old: Pod, new: Pod) -> bool:
    return _read_for_both(old) != _read_for_both(new) or _end(old) != _end(new)


def _end(pod: Pod) -> str:
    """How a pod finished; empty in all other phases."""
    if not pod.finished:
        return ""
    return pod.phase


def changed_values(old: Pod, new: Pod) -> set[Mark]:
    """The conditions, labels and annotations that were added, removed or changed."""
    changed = set()
    if old.conditions != new.conditions:
        before = {*old.conditions}
        after = {*new.conditions}
        for condition in before ^ after:
            changed.add(Mark("conditions", condition.type))
    if old.labels != new.labels:
        differing = old.labels.items() ^ new.labels.items()
        for key, _ in differing:
            changed.add(Mark("labels", key))
    if old.annotations != new.annotations:
        differing = old.annotations.items() ^ new.annotations.items()
        for key, _ in differing:
            changed.add(Mark("annotations", key))
    return changed


def changed_owners(old: Pod, new: Pod) -> Owned:
    """What field managers own now, or do not own any more."""
    return (old.owned ^ new.owned) | (old.owned_by_others ^ new.owned_by_others)
