"""Long computations in slices: the event loop does everything else in between.

A computation is a generator that yields where it may be interrupted, after some milliseconds of work at most. All computations
of a process share one `Slices`, so that together they have one slice of a pass of the event loop, however many workers there are.

Source: no counterpart; Go's scheduler interrupts goroutines.
"""

import asyncio
from collections import deque
from collections.abc import Generator
from contextvars import Context, copy_context
from typing import Any, Final, NamedTuple, TypeVar

from kruise_probe.api.times import loop_time
from kruise_probe.workqueue.steps import run_step

T = TypeVar("T")

Steps = Generator[None, None, T]
"""A computation with the result T. Each step is bounded, whatever its input."""

PODS_PER_STEP: Final = 64
"""Pods that a step may process: some 0.3 ms, or 15 ms if each pod has all that the limits allow and nothing is cached."""

SLICE_SECONDS: Final = 0.005
"""Of a pass of the event loop, for all computations together."""


class _Computation(NamedTuple):
    """Steps, the context of the reconcile that waits for their result, and that."""

    steps: Steps[Any]
    context: Context
    result: asyncio.Future[Any]


class Slices:
    """Takes turns between computations, one step each."""

    def __init__(self) -> None:
        self._waiting: Final[deque[_Computation]] = deque()

    async def run(self, steps: Steps[T]) -> T:
        """Run the steps in one or more passes of the event loop, and return the result."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._run_slice)
        result: asyncio.Future[T] = loop.create_future()
        self._waiting.append(_Computation(steps, copy_context(), result))
        return await result

    def _run_slice(self) -> None:
        ends_at = loop_time() + SLICE_SECONDS
        while self._waiting and loop_time() < ends_at:
            self._run_step(self._waiting.popleft())
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._run_slice)

    def _run_step(self, computation: _Computation) -> None:
        steps, context, result = computation
        if result.done():  # the reconcile was cancelled
            return
        try:
            context.run(run_step, steps.__next__)
        except StopIteration as end:
            result.set_result(end.value)
        except Exception as error:  # noqa: BLE001 - the reconcile raises it
            result.set_exception(error)
        else:
            self._waiting.append(computation)
