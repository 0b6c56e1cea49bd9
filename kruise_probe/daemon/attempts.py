"""The probe of a worker that is under way: begun, looked at or waited for, and told of; never two at once.

Whatever goes wrong in it is told as a failure: one bad probe never stops another. A time that ran out while the process
stood still is no verdict: the probe is asked again at its next tick, where it counts whatever happens.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from kruise_probe.daemon.probers.prober import (
    Continuation,
    Outcome,
    PendingResponse,
    Prober,
    StartResult,
    Target,
)
from kruise_probe.daemon.probers.rounds import end_of_round
from kruise_probe.daemon.standstill import Standstill

Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
"""Starts what has to be waited for; its owner cancels it at the end."""


class Attempts:
    """Runs one probe after the other.

    Args:
        on_outcome: called with the outcome, and with how many seconds it took.
        on_failure: called with what kept it from having one.
        on_end: called when nothing is under way any more that was before, also when it was discarded.
    """

    def __init__(
        self,
        spawn: Spawn,
        standstill: Standstill,
        *,
        on_outcome: Callable[[Outcome, float], None],
        on_failure: Callable[[Exception], None],
        on_end: Callable[[], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._spawn = spawn
        self._standstill = standstill
        self._excused = False
        self._on_outcome = on_outcome
        self._on_failure = on_failure
        self._on_end = on_end
        self._under_way: asyncio.Task[None] | asyncio.Handle | None = None
        # Counts what was discarded: an outcome of what was begun under another number is not told.
        self._generation = 0

    @property
    def under_way(self) -> bool:
        return self._under_way is not None

    def begin(self, prober: Prober, target: Target) -> None:
        """Starts a probe. Must not be called while one is under way."""
        began = self._loop.time()
        self._take(partial(prober.start, target), began)

    def discard(self) -> None:
        """Gives up what is under way; nothing comes of it any more but its end."""
        self._generation += 1
        if self._under_way is None:
            return
        self._under_way.cancel()
        if isinstance(self._under_way, asyncio.Handle):
            self._under_way = self._loop.call_soon(self._ended)

    def _take(self, step: Callable[[], StartResult], began: float) -> None:
        """Does what needs no waiting, and sees to the rest."""
        try:
            begun = step()
            if isinstance(begun, Outcome):
                self._on_outcome(begun, self._loop.time() - began)
                return
        except Exception as error:  # noqa: BLE001 - told as a failure
            self._on_failure(error)
            return
        if isinstance(begun, PendingResponse):
            due = end_of_round(self._loop)
            self._under_way = self._loop.call_at(due, self._look, begun, began)
        else:
            # Not in the coroutine's own end: one that is cancelled before it runs has none.
            task = self._spawn(self._wait(begun, began, self._generation))
            task.add_done_callback(self._ended)
            self._under_way = task

    def _look(self, asked: PendingResponse, began: float) -> None:
        self._under_way = None
        self._take(asked.look, began)
        if self._under_way is None:
            self._on_end()

    async def _wait(self, waiting: Continuation, began: float, generation: int) -> None:
        try:
            outcome = await waiting()
            if generation == self._generation and not self._timed_out_during_stall(outcome, began):
                self._on_outcome(outcome, self._loop.time() - began)
        except Exception as error:  # noqa: BLE001 - told as a failure
            if generation == self._generation:
                self._on_failure(error)

    def _timed_out_during_stall(self, outcome: Outcome, began: float) -> bool:
        """Whether nobody could hear an answer in time; never twice in a row, or a slow node would hide every failure."""
        self._excused = outcome.timed_out and not self._excused and self._standstill.since(began)
        return self._excused

    def _ended(self, _: object = None) -> None:
        self._under_way = None
        self._on_end()
