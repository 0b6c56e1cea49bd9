"""The shortest part of a sequence that still fails."""

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

MOST_RUNS = 80


def shrink(steps: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> Sequence[T]:
    """Leave out steps while the others still fail (delta debugging), with at most `MOST_RUNS` runs."""
    runs = MOST_RUNS
    size = max(len(steps) // 2, 1)
    while size:
        start = 0
        while start < len(steps) and runs:
            fewer = [*steps[:start], *steps[start + size :]]
            runs -= 1
            if fails(fewer):
                steps = fewer
            else:
                start += size
        size //= 2
    return steps
