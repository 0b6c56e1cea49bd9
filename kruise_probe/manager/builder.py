"""Builder: wires one controller of a manager.

Source: controller-runtime pkg/builder.
Differs: with `watches` alone, keys may have any type: that of the map functions. `complete` accepts a queue that other event
handlers fill.
"""

from collections.abc import Awaitable, Callable, Hashable, Iterable
from typing import Any, Generic, Protocol, Self, TypeVar

from kruise_probe.api.declared import KindRef, resource_of
from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.kinds import KubeObject, Resource
from kruise_probe.manager.manager import Manager
from kruise_probe.manager.predicates import Predicate
from kruise_probe.manager.sources import (
    OWNER_INDEX,
    EnqueueKeys,
    controller_uids,
    keys_of_owner,
    own_key,
)
from kruise_probe.workqueue.controller import RECONCILE_TIMEOUT_SECONDS, Controller, Result
from kruise_probe.workqueue.priority import Priority
from kruise_probe.workqueue.queue import WorkQueue
from kruise_probe.workqueue.rate_limiters import RateLimiter

T = TypeVar("T", bound=KubeObject)
K = TypeVar("K", bound=Hashable)
K_contra = TypeVar("K_contra", bound=Hashable, contravariant=True)


class Reconciler(Protocol[K_contra]):
    """Acts on one key; see `workqueue.controller` for its contract."""

    async def reconcile(self, key: K_contra, /) -> Result | None: ...


class Builder(Generic[K]):
    """Describes a controller; `complete` adds it to the manager. Keys are `NamespacedName` unless `watches` maps to others.

    The name is the plural of the kind that `for_` names, unless `named` sets it. One worker, unless `workers` sets more.
    """

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self._name = ""
        self._for: Resource[Any] | None = None
        self._workers = 1
        self._timeout_seconds = RECONCILE_TIMEOUT_SECONDS
        self._rate_limiter: RateLimiter[K] | None = None
        self._sources: list[Callable[[WorkQueue[K]], None]] = []

    def named(self, name: str) -> Self:
        """Name the controller, for logs and metrics."""
        self._name = name
        return self

    def workers(self, count: int) -> Self:
        """Reconcile up to `count` keys at a time."""
        self._workers = count
        return self

    def rate_limiter(self, limiter: RateLimiter[K]) -> Self:
        """Set the delays of retries; by default `default_controller_rate_limiter()`."""
        self._rate_limiter = limiter
        return self

    def timeout(self, seconds: float) -> Self:
        """Set the timeout of one reconcile."""
        self._timeout_seconds = seconds
        return self

    def for_(
        self,
        kind: KindRef[T],
        *,
        predicates: Iterable[Predicate] = (),
        priority: Priority = Priority.NORMAL,
    ) -> "Builder[NamespacedName]":
        """Reconcile the objects of `kind`. The key is that of the object."""
        self._for = resource_of(kind)
        keyed: Builder[NamespacedName] = self  # type: ignore[assignment]  # for_ decides the type of the keys
        return keyed.watches(kind, own_key, predicates=predicates, priority=priority)

    def owns(
        self,
        kind: KindRef[T],
        *,
        predicates: Iterable[Predicate] = (),
        priority: Priority = Priority.NORMAL,
    ) -> "Builder[NamespacedName]":
        """Reconcile the controller owner of each object of `kind`, if it is of the kind that `for_` names.

        Raises:
            ValueError: `for_` was not called before.
        """
        if self._for is None:
            raise ValueError("call for_() before owns()")
        self._manager.index(kind, OWNER_INDEX, controller_uids)
        keyed: Builder[NamespacedName] = self  # type: ignore[assignment]  # for_ decides the type of the keys
        return keyed.watches(
            kind, keys_of_owner(self._for), predicates=predicates, priority=priority
        )

    def watches(
        self,
        kind: KindRef[T],
        map_fn: Callable[[T], Iterable[K]],
        *,
        predicates: Iterable[Predicate] = (),
        priority: Priority = Priority.NORMAL,
    ) -> Self:
        """Reconcile the keys that `map_fn` returns for each changed object of `kind`, before and after the change."""
        informer = self._manager.informer(kind)
        filters = tuple(predicates)
        self._sources.append(
            lambda queue: informer.add_event_handler(EnqueueKeys(queue, map_fn, filters, priority))
        )
        return self

    def complete(
        self,
        reconciler: Reconciler[K] | Callable[[K], Awaitable[Result | None]],
        *,
        queue: WorkQueue[K] | None = None,
    ) -> Controller[K]:
        """Add the controller to the manager.

        Args:
            reconciler: a function of a key, or an object with the method `reconcile`.
            queue: replaces the controller's own queue, and `named` and `rate_limiter` with it. Others may fill it, such as
                event handlers that serve several controllers.

        Raises:
            ValueError: the controller has no name.
        """
        if queue is None:
            name = self._name or (self._for.plural if self._for else "")
            if not name:
                raise ValueError("a controller without for_() needs named()")
            queue = WorkQueue(name=name, rate_limiter=self._rate_limiter)
        for connect in self._sources:
            connect(queue)
        controller = Controller(
            queue=queue,
            reconcile=reconciler if callable(reconciler) else reconciler.reconcile,
            workers=self._workers,
            timeout_seconds=self._timeout_seconds,
        )
        self._manager.add_controller(controller)
        return controller
