"""Sources of a controller: event handlers that enqueue keys.

Source: controller-runtime pkg/handler (EnqueueRequestForObject, EnqueueRequestForOwner, EnqueueRequestsFromMapFunc).
Differs: keys of an initial list and of a resync have LOW priority, so that they never delay new events.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

from kruise_probe.api.declared import Unstructured
from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.kinds import KubeObject, Resource
from kruise_probe.api.meta import ApiObject, OwnerReference
from kruise_probe.manager.object_changes import controller_of
from kruise_probe.manager.predicates import Predicate
from kruise_probe.workqueue.priority import Priority
from kruise_probe.workqueue.queue import WorkQueue

T = TypeVar("T", bound=KubeObject)
K = TypeVar("K", bound=Hashable)

OWNER_INDEX = "metadata.ownerReferences.controller.uid"


class EnqueueKeys(Generic[T, K]):
    """Enqueues the keys that `keys_of` returns for an object; for an update, those of the old and the new object."""

    def __init__(
        self,
        queue: WorkQueue[K],
        keys_of: Callable[[T], Iterable[K]],
        predicates: Iterable[Predicate],
        priority: Priority,
    ) -> None:
        self._queue = queue
        self._keys_of = keys_of
        self._predicates = tuple(predicates)
        self._priority = priority

    def on_add(self, obj: T, is_initial: bool) -> None:
        if all(each.create(obj) for each in self._predicates):
            self._enqueue(self._keys_of(obj), Priority.LOW if is_initial else self._priority)

    def on_update(self, old: T, new: T) -> None:
        if all(each.update(old, new) for each in self._predicates):
            if old is new:  # a resync
                self._enqueue(self._keys_of(new), Priority.LOW)
            else:
                self._enqueue((*self._keys_of(old), *self._keys_of(new)), self._priority)

    def on_delete(self, last_known: T) -> None:
        if all(each.delete(last_known) for each in self._predicates):
            self._enqueue(self._keys_of(last_known), self._priority)

    def _enqueue(self, keys: Iterable[K], priority: Priority) -> None:
        for key in keys:
            self._queue.add(key, priority)


def own_key(obj: KubeObject) -> tuple[NamespacedName, ...]:
    return (obj.key,)


def controller_uids(obj: KubeObject) -> tuple[str, ...]:
    """The index function of OWNER_INDEX."""
    reference = _controller(obj)
    return (reference.uid,) if reference is not None else ()


def keys_of_owner(
    owner: Resource[KubeObject],
) -> Callable[[KubeObject], tuple[NamespacedName, ...]]:
    """Return the function that maps an object to the key of its controller owner, if that is an `owner` of any version."""

    def keys_of(obj: KubeObject) -> tuple[NamespacedName, ...]:
        reference = _controller(obj)
        if reference is None or reference.kind != owner.kind:
            return ()
        if reference.api_version.rpartition("/")[0] != owner.group:
            return ()
        namespace = obj.key.namespace if owner.namespaced else ""
        return (NamespacedName(namespace, reference.name),)

    return keys_of


def _controller(obj: KubeObject) -> OwnerReference | None:
    if not isinstance(obj, ApiObject | Unstructured):
        raise TypeError(f"{type(obj).__name__} has no metadata: owns() needs an ApiObject")
    return controller_of(obj)
