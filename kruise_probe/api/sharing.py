"""Bounded caches for parts that many decoded objects have in common.

Source: no counterpart. In Go, copied strings and slices share memory; separately decoded Python values do not.
"""

from typing import Final, TypeVar

SHARED_SHAPES: Final = 8192
"""Maximum entries per cache; about one entry per pod template."""

_K = TypeVar("_K")
_V = TypeVar("_V")


def share(cache: dict[_K, _V], key: _K, made: _V) -> _V:
    """Cache `made`. A full cache is cleared first, because an LRU's bookkeeping costs more than a decode."""
    if len(cache) >= SHARED_SHAPES:
        cache.clear()
    cache[key] = made
    return made
