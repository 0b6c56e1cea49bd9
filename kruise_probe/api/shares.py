"""Max-min fair shares: a tenant that needs less than an equal part gets all it needs, the others divide the rest equally.

Source: Bertsekas and Gallager, Data Networks, 6.5.2.
"""

from collections.abc import Hashable, Iterable, Mapping
from typing import TypeVar

K = TypeVar("K", bound=Hashable)


def equal_share(wanted: Iterable[int], total: int) -> int:
    """The limit of each tenant: tenants below it get all they need, the others get the limit."""
    left = total
    ordered = sorted(wanted)
    for index, amount in enumerate(ordered):
        share = left // (len(ordered) - index)
        if amount > share:
            return share
        left -= amount
    return ordered[-1] if ordered else total


def divided(wanted: Mapping[K, int], total: int) -> dict[K, int]:
    """What each tenant gets of `total`."""
    share = equal_share(wanted.values(), total)
    return {tenant: min(amount, share) for tenant, amount in wanted.items()}
