"""Typing errors in names: which name of several is meant."""

import difflib
from collections.abc import Iterable
from typing import Final

MAX_COMPARED: Final = 320
"""Longest name that is compared, a little more than the longest valid key."""
MAX_DIFFERENT: Final = 3
"""Letters in which a typing error differs from its name, counted in both: two for a wrong letter or a swap."""
MIN_RATIO: Final = 0.6


def did_you_mean(wrong: str, names: Iterable[str]) -> str:
    """` Did you mean 'x'?` if exactly one name differs from `wrong` only by a typing error or in case; otherwise empty."""
    close = closest_name(wrong, names)
    return f" Did you mean {close!r}?" if close else ""


def closest_name(wrong: str, names: Iterable[str]) -> str:
    """The only name that differs from `wrong` only by a typing error or in case; empty if there is none or several."""
    close = [each for each in names if each != wrong and _is_close(wrong.lower(), each.lower())]
    return close[0] if len(close) == 1 else ""


def _is_close(left: str, right: str) -> bool:
    domain, slash, _ = left.rpartition("/")
    if slash and right.startswith(f"{domain}/"):  # a common domain says nothing
        left, right = left[len(domain) + 1 :], right[len(domain) + 1 :]
    if abs(len(left) - len(right)) > 2 or len(left) > MAX_COMPARED:
        return False
    if left.strip("0123456789") == right.strip("0123456789"):
        return left == right  # v1 and v2, but not a name and itself in another case
    matcher = difflib.SequenceMatcher(None, left, right, autojunk=False)
    same = sum(block.size for block in matcher.get_matching_blocks())
    total = len(left) + len(right)
    return total - 2 * same <= MAX_DIFFERENT and 2 * same >= MIN_RATIO * total
