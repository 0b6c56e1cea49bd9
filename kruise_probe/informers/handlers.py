"""Who is told of changes, and how: at once, in order, each on its own.

Source: client-go tools/cache/shared_informer.go (sharedProcessor) and controller.go (ResourceEventHandler).
Differs: handlers run synchronously on the loop, so there is no buffer that could grow without bound.
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
    """Told after the store has changed. Must be quick and must not block: put a key into a queue."""

    def on_add(self, obj: T_contra, is_initial: bool) -> None:
        """`is_initial`: part of the first list, or of the replay for a handler that came late."""

    def on_update(self, old: T_contra, new: T_contra) -> None:
        """`old is new` on a resync: nothing changed."""

    def on_delete(self, last_known: T_contra) -> None:
        """The object is gone; `last_known` is the state that was in the store until now."""


class Handlers(Generic[T]):
    """The handlers of one informer. One that raises is logged, and keeps nobody from being told."""

    def __init__(self, informer: str) -> None:
        self._informer = informer
        self._handlers: tuple[EventHandler[T], ...] = ()

    def add(self, handler: EventHandler[T]) -> None:
        self._handlers = (*self._handlers, handler)

    def replay(self, handler: EventHandler[T], obj: T) -> None:
        self._tell(handler.on_add, obj, True)

    def added(self, obj: T, is_initial: bool) -> None:
        for handler in self._handlers:
            self._tell(handler.on_add, obj, is_initial)

    def updated(self, old: T, new: T) -> None:
        for handler in self._handlers:
            self._tell(handler.on_update, old, new)

    def deleted(self, last_known: T) -> None:
        for handler in self._handlers:
            self._tell(handler.on_delete, last_known)

    def _tell(self, call: Callable[[T, *Ts], None], obj: T, *more: *Ts) -> None:
        try:
            call(obj, *more)
        except Exception:  # noqa: BLE001 - one bad handler or object must not stop the informer
            _log.exception("event handler failed", informer=self._informer, object=str(obj.key))
