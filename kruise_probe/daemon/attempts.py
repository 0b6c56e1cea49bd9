"""The attempt in flight of one worker: starts it, waits for it and reports its result; never two at once.

Every exception is reported to `on_failure`: one bad probe never stops another. A timeout during a stall of the daemon
is ignored once; the next attempt counts in any case.
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
"""Starts a task; its owner cancels it at the end."""


class Attempts:
    """Runs one attempt at a time.

    Args:
        on_outcome: called with the result of an attempt and its duration in seconds.
        on_failure: called with the error of an attempt without a result.
        on_end: called when the attempt in flight has ended, also if it was discarded. Not called for an attempt
            that ends within `begin`.
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
        self._ignored_timeout = False
        self._on_outcome = on_outcome
        self._on_failure = on_failure
        self._on_end = on_end
        self._under_way: asyncio.Task[None] | asyncio.Handle | None = None
        # Increases with every discard: results of older generations are dropped.
        self._generation = 0

    @property
    def under_way(self) -> bool:
        return self._under_way is not None

    def begin(self, prober: Prober, target: Target) -> None:
        """Start an attempt. Must not be called while one is in flight."""
        began = self._loop.time()
        self._run_step(partial(prober.start, target), began)

    def discard(self) -> None:
        """Cancel the attempt in flight: its result is dropped, `on_end` is still called."""
        self._generation += 1
        if self._under_way is None:
            return
        self._under_way.cancel()
        if isinstance(self._under_way, asyncio.Handle):
            self._under_way = self._loop.call_soon(self._ended)

    def _run_step(self, step: Callable[[], StartResult], began: float) -> None:
        """Run one synchronous step of the attempt, and schedule the next one if there is one."""
        try:
            begun = step()
            if isinstance(begun, Outcome):
                self._on_outcome(begun, self._loop.time() - began)
                return
        except Exception as error:  # noqa: BLE001 - reported as a failure
            self._on_failure(error)
            return
        if isinstance(begun, PendingResponse):
            due = end_of_round(self._loop)
            self._under_way = self._loop.call_at(due, self._check_response, begun, began)
        else:
            # Not a `finally` in the coroutine: a task that is cancelled before its first step never enters it.
            task = self._spawn(self._wait(begun, began, self._generation))
            task.add_done_callback(self._ended)
            self._under_way = task

    def _check_response(self, asked: PendingResponse, began: float) -> None:
        self._under_way = None
        self._run_step(asked.look, began)
        if self._under_way is None:
            self._on_end()

    async def _wait(self, waiting: Continuation, began: float, generation: int) -> None:
        try:
            outcome = await waiting()
            if generation == self._generation and not self._timed_out_during_stall(outcome, began):
                self._on_outcome(outcome, self._loop.time() - began)
        except Exception as error:  # noqa: BLE001 - reported as a failure
            if generation == self._generation:
                self._on_failure(error)

    def _timed_out_during_stall(self, outcome: Outcome, began: float) -> bool:
        """Whether to ignore this timeout. Never two in a row: a slow node would hide every failure."""
        self._ignored_timeout = (
            outcome.timed_out and not self._ignored_timeout and self._standstill.since(began)
        )
        return self._ignored_timeout

    def _ended(self, _: object = None) -> None:
        self._under_way = None
        self._on_end()
