"""A leak fails the test that caused it.

A transport, socket or file that was not closed warns when it is collected, which may be minutes later.
"""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_leaks() -> Iterator[None]:
    """Collects garbage at the end, and fails for every unclosed object that was collected since the start.

    Keeps texts only: an exception would keep its traceback's objects, which would then warn in the next test.
    """
    found: list[str] = []

    def note(unraisable: "sys.UnraisableHookArgs") -> None:
        found.append(f"{unraisable.exc_value!r} in {unraisable.object!r}")

    before = sys.unraisablehook
    sys.unraisablehook = note
    try:
        yield
        gc.collect()
    finally:
        sys.unraisablehook = before
    assert not found, "left open, or failed while it was collected:\n" + "\n".join(found)


@contextmanager
def freed_at_once(*kinds: type, but: int = 0) -> Iterator[None]:
    """Fails if the block leaves more than `but` objects of these kinds, which a garbage collection would free."""
    gc.collect()
    gc.disable()
    try:
        yield
        left = [kind for kind in map(type, gc.get_objects()) if kind in kinds]
    finally:
        gc.enable()
    assert len(left) <= but, left


def freeze_imports() -> None:
    """Excludes imported objects from collections: one takes one millisecond instead of seventy."""
    gc.collect()
    gc.freeze()
