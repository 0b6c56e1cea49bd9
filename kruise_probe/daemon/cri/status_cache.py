"""Caches the status of containers or sandboxes: one call per id, retried after a failure.

A call that hangs or fails delays no other call. It does not make the runtime unavailable; only a failed list does.

Source: kubelet pkg/kubelet/pleg/generic.go (updateCache).
Differs: kubelet updates one pod after the other, so a call that hangs delays all pods.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Final, Generic, TypeVar

import structlog

from kruise_probe.daemon.cri.runtime import RuntimeFailure

_log = structlog.get_logger(__name__)

RETRY_SECONDS: Final = 1.0
"""Delay from a failure to the next call for the same id."""

_PARALLEL: Final = 8

S = TypeVar("S")


class StatusCache(Generic[S]):
    """The responses of `call`, by id.

    The task group that is passed to `request` owns the call. Cancelling it keeps the cached responses.

    Args:
        on_change: called with the id after each response or failure, and when a failed id is due again.
    """

    def __init__(
        self, call: Callable[[str], Awaitable[S]], *, on_change: Callable[[str], None]
    ) -> None:
        self._call = call
        self._on_change = on_change
        self._places = asyncio.Semaphore(_PARALLEL)
        self._statuses: dict[str, S] = {}
        self._failures: dict[str, RuntimeFailure] = {}
        self._in_flight: set[str] = set()

    def get(self, id: str) -> S | None:
        return self._statuses.get(id)

    def failure(self, id: str) -> RuntimeFailure | None:
        """The error of the last call; None if it succeeded, or if there was no call yet."""
        return self._failures.get(id)

    def is_due(self, id: str) -> bool:
        """Whether the id has no response and no call in flight."""
        return id not in self._statuses and id not in self._in_flight

    def request(self, id: str, group: asyncio.TaskGroup) -> None:
        """Start the call for the id if it is due."""
        if self.is_due(id):
            self._in_flight.add(id)
            _ = group.create_task(self._call_for(id), name=f"status of {id}")

    async def _call_for(self, id: str) -> None:
        try:
            async with self._places:
                self._statuses[id] = await self._call(id)
            self._failures.pop(id, None)
        except RuntimeFailure as failure:
            _log.debug("status call failed", id=id, error=str(failure))
            # The first text stays, as in `state.attempt_blocked`.
            if type(self._failures.get(id)) is not type(failure):
                self._failures[id] = failure
            self._on_change(id)
            await asyncio.sleep(RETRY_SECONDS)
        finally:
            self._in_flight.discard(id)
        self._on_change(id)

    def forget_others(self, ids: Collection[str]) -> None:
        """Forget all ids but these."""
        self._statuses = {id: status for id, status in self._statuses.items() if id in ids}
        self._failures = {id: failure for id, failure in self._failures.items() if id in ids}
