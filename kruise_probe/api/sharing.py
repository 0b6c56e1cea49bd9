"""Parts that many objects have in common, kept once.

Source: no counterpart; Go's strings and slices share memory when they are copied, what is decoded here does not.
"""

from typing import Final, TypeVar

SHARED_SHAPES: Final = 8192
"""Bound of each cache of such parts: an entry per pod template seen, more or less."""

_K = TypeVar("_K")
_V = TypeVar("_V")


def share(cache: dict[_K, _V], key: _K, made: _V) -> _V:
    """Remembers what was made; full, the cache starts anew (an LRU's bookkeeping would cost more than a decode)."""
    if len(cache) >= SHARED_SHAPES:
        cache.clear()
    cache[key] = made
    return made
