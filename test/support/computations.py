"""Computations in steps, run without a pause."""

from typing import TypeVar

from kruise_probe.workqueue.slices import Steps

T = TypeVar("T")


def at_once(steps: Steps[T]) -> T:
    """Run all steps; return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
