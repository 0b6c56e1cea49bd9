"""Event handlers of an informer: called synchronously, in order, each isolated from errors of others.

Source: client-go tools/cache/shared_informer.go (sharedProcessor) and controller.go (ResourceEventHandler).
Differs: handlers run synchronously on the event loop, so there is no unbounded buffer.
"""

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar, TypeVarTuple

import structlog

from kruise_probe.api.resources import KubeObject

T = TypeVar("T", bound=KubeObject)
T_contra = TypeVar("T_contra", contravariant=True)
Ts = TypeVarTuple("Ts")

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class EventHandler(Protocol[T_contra]):
    """Called after the store has changed. Must not block; usually it enqueues a key."""

    def on_add(self, obj: T_contra, is_initial: bool) -> None:
        """`is_initial`: the object is from the first list, or from the replay for a handler added later."""

    def on_update(self, old: T_contra, new: T_contra) -> None:
        """`old is new` on a resync."""

    def on_delete(self, last_known: T_contra) -> None:
        """`last_known`: the state of the object that was in the store before the deletion."""


class Handlers(Generic[T]):
    """The handlers of one informer. An exception of one is logged, and the others are still called."""

    def __init__(self, informer: str) -> None:
        self._informer = informer
        self._handlers: tuple[EventHandler[T], ...] = ()

    def add(self, handler: EventHandler[T]) -> None:
        self._handlers = (*self._handlers, handler)

    def replay(self, handler: EventHandler[T], obj: T) -> None:
        self._call(handler.on_add, obj, True)

    def added(self, obj: T, is_initial: bool) -> None:
        for handler in self._handlers:
            self._call(handler.on_add, obj, is_initial)

    def updated(self, old: T, new: T) -> None:
        for handler in self._handlers:
            self._call(handler.on_update, old, new)

    def deleted(self, last_known: T) -> None:
        for handler in self._handlers:
            self._call(handler.on_delete, last_known)

    def _call(self, method: Callable[[T, *Ts], None], obj: T, *args: *Ts) -> None:
        try:
            method(obj, *args)
        except Exception:  # noqa: BLE001 - one bad handler or object must not stop the informer
            _log.exception("event handler failed", informer=self._informer, object=str(obj.key))
