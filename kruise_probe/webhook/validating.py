"""Validation of PodProbeMarkers.

Source: Kruise pkg/webhook/podprobemarker/validating; apiextensions' ratcheting for which fields updates may keep.
Differs: reports all errors at once, each with its field.
"""

from collections.abc import Collection, Iterator
from typing import Final

from kruise_probe.api.meta import DECODE_ERRORS
from kruise_probe.api.problems import ErrorKind, Problem, first_errors, violation
from kruise_probe.api.resources import MARKERS
from kruise_probe.api.v1alpha1 import PodProbeMarker
from kruise_probe.api.validation import (
    fields_without_effect,
    marker_errors,
)
from kruise_probe.webhook.admission import (
    ALLOWED,
    AdmissionRequest,
    AdmissionResponse,
    deny_invalid,
    deny_too_many_values,
    deny_undecodable,
    has_too_many_values,
    is_set,
)

ITEMS_NOT_VALIDATED: Final = (
    "these items and the fields after them are not validated; there may be more errors"
)


def review_marker(
    request: AdmissionRequest, *, allowed_labels: Collection[str] = ()
) -> AdmissionResponse:
    """Deny an invalid marker, and warn about fields without effect. Unchanged parts of an update are not validated.

    So a marker stored before the rules existed can still be labelled, and can lose its finalizer on deletion.
    `allowed_labels` are the keys of the manager's --allowed-label-keys.
    """
    if request.operation not in ("CREATE", "UPDATE") or request.sub_resource:
        return ALLOWED
    if has_too_many_values(request.object):
        return deny_too_many_values(MARKERS.kind, request.name)
    try:
        marker = MARKERS.decode(request.object)
    except DECODE_ERRORS as error:
        return deny_undecodable(MARKERS.kind, request.name, error)
    errors = first_errors(
        _until_too_many(_new_errors(marker, _old_marker(request), allowed_labels))
    )
    if errors:
        return deny_invalid(MARKERS.kind, marker.metadata.name, errors)
    unused = fields_without_effect(marker.spec)
    return AdmissionResponse(
        warnings=[
            f"{each} has no effect: probes of a marker never restart a container" for each in unused
        ]
    )


def _old_marker(request: AdmissionRequest) -> PodProbeMarker | None:
    """Decode the old marker; None on creation, and if it was stored before its CRD had types or bounds."""
    if not is_set(request.old_object) or has_too_many_values(request.old_object):
        return None
    try:
        return MARKERS.decode(request.old_object)
    except DECODE_ERRORS:
        return None


def _new_errors(
    new: PodProbeMarker, old: PodProbeMarker | None, allowed_labels: Collection[str]
) -> Iterator[Problem]:
    """Errors of a new marker, or of the changed parts of an update (the selector, everything else)."""
    if old is None:
        yield from marker_errors(new.spec, allowed_labels=allowed_labels)
    elif old.spec != new.spec:
        same_selector = old.spec.selector == new.spec.selector
        for error in marker_errors(new.spec, old.spec, allowed_labels=allowed_labels):
            if not (same_selector and error.path.startswith("spec.selector")):
                yield error


def _until_too_many(errors: Iterator[Problem]) -> Iterator[Problem]:
    """Stop at the first list that is too long: it may have a hundred thousand items."""
    for error in errors:
        yield error
        if error.reason is ErrorKind.TOO_MANY:
            yield violation(error.path, ErrorKind.TOO_MANY, ITEMS_NOT_VALIDATED)
            return
