"""Changes by others of what probes write to pods: who changed it, and for how long a marker reports it.

Source: no counterpart; the API server records the field manager of each value (structured-merge-diff).
Differs: nothing.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.pods import Mark, Pod
from kruise_probe.controllers.claims import Claims
from kruise_probe.controllers.marking import same_condition

REPORTED_SECONDS: Final = 600.0
"""How long after its last change a marker reports it."""
MARGIN_SECONDS: Final = 0.1
"""Added to a timer, so that rounding never fires it early."""
MAX_CHANGES: Final = 16
"""Bound of the changes that are kept for one marker: the newest ones."""

REMOVED: Final = "a client that removed it"
"""In place of a field manager: the API server records none for what is removed."""
ADMISSION: Final = ""
"""In place of a field manager: an admission policy changed our own request."""


class ForeignChange(NamedTuple):
    """Who changed what on a pod; `by` is a field manager, REMOVED or ADMISSION."""

    pod: NamespacedName
    mark: Mark
    by: str

    def __str__(self) -> str:
        mark = self.mark
        by = self.by
        what = f"{mark.kind} {mark.name!r} of pod {self.pod}"
        if by == ADMISSION:
            return what
        if by != REMOVED:
            by = f"field manager {by!r}"
        return f"{what} ({by})"


def foreign_changes(
    old: Pod,
    new: Pod,
    claims: Claims,
) -> list[ForeignChange]:
    """What an update that is not ours changed of our marks on a pod that probes still claim."""
    ours = old.owned & claims.owners.keys()
    found = []
    for mark in _changed(old, new, ours):
        writer = new.writer_of(mark)
        if not new.has(mark):
            writer = REMOVED
        if writer:
            change = ForeignChange(new.key, mark, writer)
            found.append(change)
    return found


def _changed(
    old: Pod,
    new: Pod,
    marks: Iterable[Mark],
) -> Iterator[Mark]:
    """Those of `marks` that `old` has, and `new` has not or with another value."""
    condition_before = old.condition_lookup()
    condition_after = new.condition_lookup()
    for mark in marks:
        if mark.field == "conditions":
            before = condition_before(mark.name)
            after = condition_after(mark.name)
            is_changed = before is not None and not same_condition(after, before)
        else:
            value = old.value_of(mark)
            is_changed = value is not None and new.value_of(mark) != value
        if is_changed:
            yield mark


class ForeignChanges:
    """The changes of the last REPORTED_SECONDS, by marker."""

    def __init__(self) -> None:
        self._seen_at: dict[NamespacedName, dict[ForeignChange, float]] = {}

    def record(
        self,
        marker: NamespacedName,
        change: ForeignChange,
        now: float,
    ) -> None:
        changes = self._seen_at.setdefault(marker, {})
        changes.pop(change, None)
        changes[change] = now
        while len(changes) > MAX_CHANGES:
            oldest = next(iter(changes))
            del changes[oldest]

    def of(self, marker: NamespacedName, now: float) -> list[ForeignChange]:
        """The changes that a marker reports now, in the order in which they were last seen."""
        changes = self._seen_at.get(marker)
        if changes is None:
            return []
        for change, seen_at in [*changes.items()]:
            ends_at = seen_at + REPORTED_SECONDS
            if ends_at <= now:
                del changes[change]
        if not changes:
            del self._seen_at[marker]
        return [*changes]

    def seconds_left(self, marker: NamespacedName, now: float) -> float | None:
        """Seconds until a change is not reported any more; None without one."""
        changes = self._seen_at.get(marker)
        if not changes:
            return None
        oldest_at = min(changes.values())
        left = oldest_at + REPORTED_SECONDS - now
        return max(left, 0.0) + MARGIN_SECONDS

    def forget(self, marker: NamespacedName) -> None:
        self._seen_at.pop(marker, None)
