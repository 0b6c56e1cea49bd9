"""Validation of PodProbeMarkers.

Source: Kruise pkg/webhook/podprobemarker/validating; apiextensions' ratcheting for which fields updates may keep.
Differs: reports all errors at once, each with its field.
"""

from collections.abc import Collection, Iterator

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
    MAX_VALUES,
    AdmissionRequest,
    AdmissionResponse,
    denied,
    has_too_many_values,
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
    kind, name = MARKERS.kind, request.name
    if has_too_many_values(request.object):
        message = f'{kind} "{name}" has more than {MAX_VALUES} values, which is too large to validate; create several objects instead'
        return denied(413, "RequestEntityTooLarge", message)
    try:
        marker = MARKERS.decode(request.object)
    except DECODE_ERRORS as error:
        message = (
            f'{kind} "{name}" cannot be decoded: {error}; see kubectl explain {kind.lower()}.spec'
        )
        return denied(422, "Invalid", message)
    errors = first_errors(_new_errors(marker, _old_marker(request), allowed_labels))
    if errors:
        name, listed = marker.metadata.name, ", ".join(map(str, errors))
        message = f'{kind} "{name}" is invalid: ' + (f"[{listed}]" if len(errors) > 1 else listed)
        causes = [error.cause for error in errors]
        details = {"name": name, "kind": kind, "causes": causes}
        return denied(422, "Invalid", message, details=details)
    return AdmissionResponse(
        warnings=[
            f"{path} has no effect: probes of a marker never restart a container"
            for path in fields_without_effect(marker.spec)
        ]
    )


def _old_marker(request: AdmissionRequest) -> PodProbeMarker | None:
    """Decode the old marker; None on creation, when it is null, and if it was stored before its CRD had types or bounds."""
    if has_too_many_values(request.old_object):
        return None
    try:
        return MARKERS.decode(request.old_object)
    except DECODE_ERRORS:
        return None


def _new_errors(
    new: PodProbeMarker, old: PodProbeMarker | None, allowed_labels: Collection[str]
) -> Iterator[Problem]:
    """Errors of a new marker, or of the changed parts of an update (the selector, everything else).

    They end with the first list that is too long: it may have a hundred thousand items.
    """
    if old is not None and old.spec == new.spec:
        return
    same_selector = old is not None and old.spec.selector == new.spec.selector
    for error in marker_errors(new.spec, old.spec if old else None, allowed_labels=allowed_labels):
        if same_selector and error.path.startswith("spec.selector"):
            continue
        yield error
        if error.reason is ErrorKind.TOO_MANY:
            why = (
                "these items and the fields after them are not validated; there may be more errors"
            )
            yield violation(error.path, ErrorKind.TOO_MANY, why)
            return
