"""Values of annotations that the API server reads: None, or the sentence that says what is wrong.

The API server refuses such a value together with everything else that the patch of a pod carries.

Source: kubernetes pkg/apis/core/helper (GetDeletionCostFromPodAnnotations).
Differs: nothing.
"""

import re
from typing import Final

from kruise_probe.api import remedies
from kruise_probe.api.names import DELETION_COST_ANNOTATION

MIN_COST: Final = -(2**31)
MAX_COST: Final = 2**31 - 1
COST_PATTERN: Final = "0|[1-9][0-9]{0,9}|-0*[0-9]{1,10}"
"""Integers as the API server reads them: no plus sign, and zeros may lead after a minus only. Not all are in bounds."""

_COST = re.compile(COST_PATTERN)


def annotation_value_error(key: str, value: str) -> str | None:
    """Any text is a value, but for keys of which the API server wants more."""
    if key == DELETION_COST_ANNOTATION and not is_deletion_cost(value):
        return remedies.DELETION_COST
    return None


def is_deletion_cost(value: str) -> bool:
    """Whether the API server takes `value` as a pod's deletion cost."""
    if not _COST.fullmatch(value):
        return False
    digits = value.lstrip("-").lstrip("0") or "0"  # Python reads no thousands of digits
    return MIN_COST <= (-int(digits) if value.startswith("-") else int(digits)) <= MAX_COST
