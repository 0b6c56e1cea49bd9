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
    """` Did you mean 'x'?` as `closest_name`; otherwise empty."""
    close = closest_name(wrong, names)
    return f" Did you mean {close!r}?" if close else ""


def closest_name(wrong: str, names: Iterable[str]) -> str:
    """The name that differs least from `wrong`, only by a typing error or in case; empty if there is none or several."""
    found = [
        (letters, each)
        for each in names
        if each != wrong and (letters := _difference(wrong.lower(), each.lower())) is not None
    ]
    close = [each for letters, each in found if letters == min(found)[0]]
    return close[0] if len(close) == 1 else ""


def _difference(left: str, right: str) -> int | None:
    """The letters that differ; None if it is no typing error."""
    domain, slash, _ = left.rpartition("/")
    if slash and right.startswith(f"{domain}/"):  # a common domain says nothing
        left, right = left[len(domain) + 1 :], right[len(domain) + 1 :]
    if abs(len(left) - len(right)) > 2 or len(left) > MAX_COMPARED:
        return None
    if left.strip("0123456789") == right.strip("0123456789"):
        return 0 if left == right else None  # v1 and v2, but not a name and itself in another case
    matcher = difflib.SequenceMatcher(None, left, right, autojunk=False)
    same = 2 * sum(block.size for block in matcher.get_matching_blocks())
    total = len(left) + len(right)
    different = total - same
    return different if different <= MAX_DIFFERENT and same >= MIN_RATIO * total else None
