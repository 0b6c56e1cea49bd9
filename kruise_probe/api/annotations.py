"""Which annotations a policy may not write although they are well-formed; None, or the sentence that says why not.

The API server refuses most of them, together with all else that the patch of a pod carries. What kubectl keeps of
the applied object is left out of our cache of pods, so the manager would never see that it has written it.

Source: kubernetes pkg/apis/core/validation (ValidatePodSpecificAnnotationUpdates), pkg/apis/core/helper
(GetDeletionCostFromPodAnnotations).
Differs: annotations whose values are rarely of use (tolerations, seccomp) are left to the API server to refuse.
"""

import re
from typing import Final

from kruise_probe.api import remedies
from kruise_probe.api.names import (
    APPARMOR_ANNOTATION_PREFIX,
    DELETION_COST_ANNOTATION,
    LAST_APPLIED_ANNOTATION,
    MIRROR_POD_ANNOTATION,
    PROTOCOL_ANNOTATIONS,
)

KUBERNETES_ANNOTATIONS: Final = frozenset({MIRROR_POD_ANNOTATION, LAST_APPLIED_ANNOTATION})
MIN_COST: Final = -(2**31)
MAX_COST: Final = 2**31 - 1
COST_PATTERN: Final = "0|[1-9][0-9]{0,9}|-0*[0-9]{1,10}"
"""Integers as the API server reads them: no plus sign, and zeros may lead after a minus only. Not all are in bounds."""

_COST = re.compile(COST_PATTERN)


def reserved_key_error(key: str) -> str | None:
    """Keys that belong to somebody else."""
    if key in PROTOCOL_ANNOTATIONS:
        return remedies.PROTOCOL_KEY
    if key in KUBERNETES_ANNOTATIONS or key.startswith(APPARMOR_ANNOTATION_PREFIX):
        return remedies.KUBERNETES_KEY
    return None


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
