"""Validation of annotation values that the API server itself parses.

If such a value is invalid, the API server rejects the whole pod patch.

Source: kubernetes pkg/apis/core/helper (GetDeletionCostFromPodAnnotations).
"""

import re
from typing import Final

from kruise_probe.api import remedies
from kruise_probe.api.names import DELETION_COST_ANNOTATION

MIN_COST: Final = -(2**31)
MAX_COST: Final = 2**31 - 1
COST_PATTERN: Final = "0|[1-9][0-9]{0,9}|-0*[0-9]{1,10}"
"""Integers as the API server parses them: no plus sign, and leading zeros only after a minus. Bounds not included."""

_COST = re.compile(COST_PATTERN)


def annotation_value_error(key: str, value: str) -> str | None:
    """Return what is wrong with the value, or None. Most keys allow any text."""
    if key == DELETION_COST_ANNOTATION and not is_deletion_cost(value):
        return remedies.DELETION_COST
    return None


def is_deletion_cost(value: str) -> bool:
    """Whether the API server accepts `value` as a pod deletion cost."""
    if not _COST.fullmatch(value):
        return False
    digits = value.lstrip("-").lstrip("0") or "0"  # int() rejects thousands of digits
    return MIN_COST <= (-int(digits) if value.startswith("-") else int(digits)) <= MAX_COST
