"""What the runtime says of one container, or sandbox, after the other: asked once each, again where that failed.

One that hangs or fails keeps no other waiting, and says nothing of the runtime: whether that is there, lists tell.

Source: kubelet pkg/kubelet/pleg/generic.go (updateCache).
Differs: kubelet asks for one pod after the other, so that one which hangs delays all.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Final, Generic, TypeVar

import structlog

from kruise_probe.daemon.cri.runtime import RuntimeFailure

log = structlog.get_logger(__name__)

RETRY_SECONDS: Final = 1.0
"""From a failure until the same is asked again."""

_PARALLEL: Final = 8

A = TypeVar("A")


class Answers(Generic[A]):
    """The answers of `call`, by id, as far as they are known.

    Whoever calls `ask` owns what runs then; cancelling it leaves the answers as they are.

    Args:
        on_news: called with an id that has an answer or a failure, and when it may be asked for again.
    """

    def __init__(
        self, call: Callable[[str], Awaitable[A]], *, on_news: Callable[[str], None]
    ) -> None:
        self._call = call
        self._on_news = on_news
        self._places = asyncio.Semaphore(_PARALLEL)
        self._answers: dict[str, A] = {}
        self._failures: dict[str, RuntimeFailure] = {}
        self._busy: set[str] = set()

    def get(self, id: str) -> A | None:
        return self._answers.get(id)

    def failure(self, id: str) -> RuntimeFailure | None:
        """Why there is no answer; None when there is one, or was no attempt yet."""
        return self._failures.get(id)

    def is_due(self, id: str) -> bool:
        """There is no answer, and none is on its way."""
        return id not in self._answers and id not in self._busy

    def ask(self, id: str, group: asyncio.TaskGroup) -> None:
        """Asks if that is due."""
        if self.is_due(id):
            self._busy.add(id)
            _ = group.create_task(self._ask(id), name=f"ask for {id}")

    async def _ask(self, id: str) -> None:
        try:
            async with self._places:
                self._answers[id] = await self._call(id)
            self._failures.pop(id, None)
        except RuntimeFailure as failure:
            log.debug("no status of a container or sandbox", id=id, error=str(failure))
            self._failures[id] = failure
            self._on_news(id)
            await asyncio.sleep(RETRY_SECONDS)
        self._busy.discard(id)
        self._on_news(id)

    def keep(self, ids: Collection[str]) -> None:
        """Forgets all others."""
        self._answers = {id: answer for id, answer in self._answers.items() if id in ids}
        self._failures = {id: failure for id, failure in self._failures.items() if id in ids}
