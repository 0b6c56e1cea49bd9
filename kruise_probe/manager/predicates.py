"""Predicates: which events of a source enqueue keys.

They combine with `&`, `|` and `~`. Each source of a controller has its own.

Source: controller-runtime pkg/predicate.
Differs: operators instead of And, Or and Not; a predicate gets objects instead of events; there are no generic events.
"""

from collections.abc import Callable
from typing import Any, Final, Protocol

from kruise_probe.api.meta import ObjectMeta


class HasMetadata(Protocol):
    @property
    def metadata(self) -> ObjectMeta: ...


class Predicate:
    """Three filters; a filter that is not given accepts every event.

    Args:
        create: of the object, after it was created or first listed.
        update: of the object before and after.
        delete: of the last known state of the object.
    """

    def __init__(
        self,
        *,
        create: Callable[[Any], bool] = lambda obj: True,
        update: Callable[[Any, Any], bool] = lambda old, new: True,
        delete: Callable[[Any], bool] = lambda obj: True,
    ) -> None:
        self.create = create
        self.update = update
        self.delete = delete

    def __and__(self, other: "Predicate") -> "Predicate":
        return Predicate(
            create=lambda obj: self.create(obj) and other.create(obj),
            update=lambda old, new: self.update(old, new) and other.update(old, new),
            delete=lambda obj: self.delete(obj) and other.delete(obj),
        )

    def __or__(self, other: "Predicate") -> "Predicate":
        return Predicate(
            create=lambda obj: self.create(obj) or other.create(obj),
            update=lambda old, new: self.update(old, new) or other.update(old, new),
            delete=lambda obj: self.delete(obj) or other.delete(obj),
        )

    def __invert__(self) -> "Predicate":
        return Predicate(
            create=lambda obj: not self.create(obj),
            update=lambda old, new: not self.update(old, new),
            delete=lambda obj: not self.delete(obj),
        )


def update_predicate(changed: Callable[[Any, Any], bool]) -> Predicate:
    """Accept every creation and deletion, and the updates for which `changed(old, new)` holds."""
    return Predicate(update=changed)


def object_predicate(accepted: Callable[[Any], bool]) -> Predicate:
    """Accept the events of accepted objects; of an update, if the object was accepted before or is now."""
    return Predicate(
        create=accepted, update=lambda old, new: accepted(old) or accepted(new), delete=accepted
    )


def _differ(read: Callable[[ObjectMeta], object]) -> Callable[[HasMetadata, HasMetadata], bool]:
    return lambda old, new: read(old.metadata) != read(new.metadata)


GENERATION_CHANGED: Final = update_predicate(_differ(lambda meta: meta.generation))
"""The spec changed, or the deletion began. Pods have a generation since Kubernetes 1.33."""

LABELS_CHANGED: Final = update_predicate(_differ(lambda meta: meta.labels or {}))
ANNOTATIONS_CHANGED: Final = update_predicate(_differ(lambda meta: meta.annotations or {}))
RESOURCE_VERSION_CHANGED: Final = update_predicate(_differ(lambda meta: meta.resource_version))
"""Drops resyncs."""

DELETION: Final = Predicate(
    create=lambda obj: bool(obj.metadata.deletion_timestamp),
    update=_differ(lambda meta: bool(meta.deletion_timestamp)),
)
"""The deletion began, or the object is gone."""
