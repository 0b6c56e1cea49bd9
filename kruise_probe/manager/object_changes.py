"""Finalizers, controller references and conditions: functions that return the changed object.

Objects are frozen, because caches share them. `Client.patch(old, new)` writes the difference.

Source: controller-runtime pkg/controller/controllerutil; apimachinery pkg/api/meta/conditions.go.
Differs: they return a copy instead of changing the object.
"""

from typing import TypeVar

import msgspec

from kruise_probe.api.declared import Unstructured, resource_of
from kruise_probe.api.meta import ApiObject, Condition, OwnerReference
from kruise_probe.api.times import format_time, utc_now

T = TypeVar("T", bound=ApiObject)


class AlreadyOwned(ValueError):
    """Another object is the controller of this object."""


def has_finalizer(obj: ApiObject, finalizer: str) -> bool:
    return finalizer in (obj.metadata.finalizers or ())


def add_finalizer(obj: T, finalizer: str) -> T:
    """Return the object with the finalizer; `obj` itself if it already has it."""
    present = obj.metadata.finalizers or ()
    return obj if finalizer in present else _with(obj, finalizers=(*present, finalizer))


def remove_finalizer(obj: T, finalizer: str) -> T:
    """Return the object without the finalizer; `obj` itself if it does not have it."""
    present = obj.metadata.finalizers or ()
    rest = tuple(each for each in present if each != finalizer)
    return obj if rest == present else _with(obj, finalizers=rest)


def controller_of(obj: ApiObject | Unstructured) -> OwnerReference | None:
    """Return the owner reference with `controller: true`; None if there is none."""
    owners = obj.metadata.owner_references or ()
    return next((each for each in owners if each.controller), None)


def set_controller_reference(owner: ApiObject, obj: T, *, block_owner_deletion: bool = True) -> T:
    """Return the object with `owner` as its controller. The garbage collector deletes it with its owner.

    Raises:
        AlreadyOwned: another object is its controller.
        ValueError: the owner is in another namespace.
    """
    if owner.key.namespace not in ("", obj.key.namespace):
        raise ValueError(
            f"{obj.key}: its owner {owner.key} is in another namespace; an owner is in the same one or cluster-scoped"
        )
    resource = resource_of(owner)
    reference = OwnerReference(
        resource.api_version,
        resource.kind,
        owner.metadata.name,
        owner.uid,
        controller=True,
        block_owner_deletion=block_owner_deletion or None,
    )
    present = controller_of(obj)
    if present is not None and present.uid != owner.uid:
        raise AlreadyOwned(f"{obj.key}: {present.kind} {present.name} is already its controller")
    others = [each for each in obj.metadata.owner_references or () if each.uid != owner.uid]
    return _with(obj, owner_references=(*others, reference))


def get_condition(conditions: tuple[Condition, ...] | None, type: str) -> Condition | None:
    return next((each for each in conditions or () if each.type == type), None)


def set_condition(
    conditions: tuple[Condition, ...] | None, condition: Condition
) -> tuple[Condition, ...]:
    """Return the conditions with this one. `lastTransitionTime` changes only if the status does."""
    present = get_condition(conditions, condition.type)
    if present is not None and present.status == condition.status:
        at = present.last_transition_time
    else:
        at = condition.last_transition_time or format_time(utc_now())
    changed = msgspec.structs.replace(condition, last_transition_time=at)
    if present is None:
        return (*(conditions or ()), changed)
    return tuple(changed if each is present else each for each in conditions or ())


def _with(obj: T, **fields: object) -> T:
    metadata = msgspec.structs.replace(obj.metadata, **fields)
    return msgspec.structs.replace(obj, metadata=metadata)
