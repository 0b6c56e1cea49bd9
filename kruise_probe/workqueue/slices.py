"""Long computations in slices: the event loop does everything else in between.

A computation is a generator that yields where it may be interrupted, after some milliseconds of work at most. All computations
of a process share one `Slices`, so that in a pass of the event loop at most one of them runs, however many workers there are.

Source: no counterpart; Go's scheduler interrupts goroutines.
"""

import asyncio
from collections.abc import Generator
from typing import Final, TypeVar

from kruise_probe.api.times import loop_time

T = TypeVar("T")

Steps = Generator[None, None, T]
"""A computation with the result T. Each step is bounded, whatever its input."""

PODS_PER_STEP: Final = 64
"""Pods that a step may process: some 0.3 ms, or 15 ms if each pod has all that the limits allow and nothing is cached."""

SHORT_SECONDS: Final = 0.001
"""A computation that ends within this time does not wait for the next pass."""


class Slices:
    """Takes turns between computations, one step each."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def run(self, steps: Steps[T]) -> T:
        """Run the steps, each in a pass of the event loop of its own, and return the result."""
        while True:
            async with self._turn:
                started_at = loop_time()
                try:
                    next(steps)
                except StopIteration as end:
                    result: T = end.value
                    if loop_time() - started_at >= SHORT_SECONDS:
                        await asyncio.sleep(0)  # holds the turn until the next pass
                    return result
                await asyncio.sleep(0)


def at_once(steps: Steps[T]) -> T:
    """Run all steps without a pause."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
