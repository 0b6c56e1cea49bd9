"""The rules of PodProbeMarkers as a validator of this server, in place of the CRD's CEL.

Source: `kruise_probe.api.validation`.
Differs: a real API server evaluates the CRD's own rules; the contract suite compares the two.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from kruise_probe.api.names import GROUP
from kruise_probe.api.v1alpha1 import PodProbeMarkerSpec
from kruise_probe.api.validation import validate_marker
from kruise_probe.playground.apiserver.failures import Cause, invalid_value
from kruise_probe.playground.apiserver.schema import Json

MARKERS_RESOURCE: Final = f"podprobemarkers.{GROUP}"


def marker_problems(new: Json, old: Json | None) -> Sequence[Cause]:
    """What the rule table says of a new marker, or of a change of a stored one."""
    try:
        spec = msgspec.convert(new.get("spec") or {}, PodProbeMarkerSpec)
    except msgspec.ValidationError as error:
        return [invalid_value("spec", "object", str(error))]
    before = None
    if old is not None:
        before = msgspec.convert(old.get("spec") or {}, PodProbeMarkerSpec)
        if before == spec:
            return ()
    return [Cause(**each.cause) for each in validate_marker(spec, before)]
