"""The rules of PodProbeMarkers, for the embedded API server, which has no CEL.

A real API server evaluates the CRD's own rules; the contract suite compares the two.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from kruise_probe.api.meta import without_nulls
from kruise_probe.api.names import GROUP
from kruise_probe.api.problems import first_errors
from kruise_probe.api.v1alpha1 import PodProbeMarkerSpec
from kruise_probe.api.validation import marker_errors
from kruise_probe_playground.apiserver.custom import Validator
from kruise_probe_playground.apiserver.failures import Cause, invalid_value
from kruise_probe_playground.apiserver.schema import Json


def marker_problems(new: Json, old: Json | None) -> Sequence[Cause]:
    """Return the violations of the rule table by a new marker, or by an update of a stored one."""
    try:
        spec = _spec_of(new)
    except msgspec.ValidationError as error:
        return [invalid_value("spec", "object", str(error))]
    before = None
    if old is not None:
        before = _spec_of(old)
        if before == spec:
            return ()
    return [Cause(**error.cause) for error in first_errors(marker_errors(spec, before))]


def _spec_of(marker: Json) -> PodProbeMarkerSpec:
    return msgspec.convert(without_nulls(marker.get("spec") or {}), PodProbeMarkerSpec)


MARKER_VALIDATORS: Final[Mapping[str, Validator]] = {f"podprobemarkers.{GROUP}": marker_problems}
