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
    if _read_for_both(old) != _read_for_both(new) or _end(old) != _end(new):
        return PodChange(entry=True, marks=True)
    entry = _read_for_entry(old) != _read_for_entry(new)
    if _read_for_marks(old) != _read_for_marks(new):
        return PodChange(entry, marks=True)
    changed = changed_values(old, new)
    is_decided_on = (
        not changed.isdisjoint(claims.owners)
        or not changed.isdisjoint(claims.groups)
        or not changed.isdisjoint(new.owned)
    )
    return PodChange(entry, marks=is_decided_on)


def _end(pod: Pod) -> str:
    """How a pod finished; empty in all other phases."""
    if not pod.finished:
        return ""
    return pod.phase


def changed_values(old: Pod, new: Pod) -> set[Mark]:
    """The conditions, labels and annotations that were added, removed or changed."""
    changed: set[Mark] = set()
    if old.conditions != new.conditions:
        conditions = {*old.conditions} ^ {*new.conditions}
        changed |= {Mark("conditions", condition.type) for condition in conditions}
    if old.labels != new.labels:
        labels = old.labels.items() ^ new.labels.items()
        changed |= {Mark("labels", key) for key, _ in labels}
    if old.annotations != new.annotations:
        annotations = old.annotations.items() ^ new.annotations.items()
        changed |= {Mark("annotations", key) for key, _ in annotations}
    return changed


def changed_owners(old: Pod, new: Pod) -> Owned:
    """What field managers own now, or do not own any more."""
    return (old.owned ^ new.owned) | (old.owned_by_others ^ new.owned_by_others)
