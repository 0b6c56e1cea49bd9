"""AdmissionReview requests and responses: the review of PodProbeMarkers, and the probe annotations of new pods for
serverless providers, which run the probes instead of our daemon.

The node of a pod is not known at creation, so every pod that a marker matches gets both annotations.

Source: k8s.io/api admission/v1; apiserver pkg/admission/plugin/webhook/errors for how a denial is shown to the user;
Kruise pkg/webhook/podprobemarker/validating and pkg/webhook/pod/mutating/pod_probe_marker.go; apiextensions' ratcheting for which
fields updates may keep.
Differs: reports all errors at once, each with its field. Of the probes of a pod the oldest marker is first, and wins if probes
name the same condition. Values that the client has set in the annotations are overwritten. Headers that look secret are omitted.
"""

import base64
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, Literal, NamedTuple

import msgspec

from kruise_probe.api.labels import MAX_ANNOTATION_BYTES, annotation_bytes, compile_selector
from kruise_probe.api.meta import DECODE_ERRORS, ApiObject
from kruise_probe.api.names import SERVERLESS_MARKERS_ANNOTATION, SERVERLESS_PROBES_ANNOTATION
from kruise_probe.api.pods import Pod
from kruise_probe.api.problems import ErrorKind, Problem, first_errors, violation
from kruise_probe.api.reserved import reserved_condition_error
from kruise_probe.api.resources import MARKERS, PODS
from kruise_probe.api.v1alpha1 import MARKERS_PER_POD, PodContainerProbe, PodProbeMarker
from kruise_probe.api.validation import clamp_timeout, fields_without_effect, marker_errors

API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"
MAX_WARNING: Final = 256
"""Characters of one warning. The API server truncates longer ones, and drops warnings beyond 4 KB in total."""

MAX_VALUES: Final = 30_000
"""Values in one object; a valid marker has fewer."""

_NOT_A_REVIEW: Final = f"the request body is not an {KIND} of {API_VERSION}"
_ABSENT: Final = msgspec.Raw(b"null")
_NO_EFFECT: Final = "has no effect: probes of a marker never restart a container"


class BadReview(Exception):
    """The bytes are not an AdmissionReview."""


class AdmissionRequest(msgspec.Struct, frozen=True, rename="camel"):
    """An admission request; `object` and `old_object` stay undecoded until a handler decodes them."""

    uid: str
    operation: str
    name: str = ""
    namespace: str = ""
    sub_resource: str = ""
    object: msgspec.Raw = _ABSENT
    old_object: msgspec.Raw = _ABSENT


class _Review(msgspec.Struct, frozen=True, rename="camel"):
    request: AdmissionRequest
    api_version: Literal["admission.k8s.io/v1"] = API_VERSION
    kind: Literal["AdmissionReview"] = KIND


class AdmissionResponse(NamedTuple):
    """Allows the request, or denies it with `status`. `patch` is a JSON patch."""

    status: dict[str, Any] | None = None
    warnings: Sequence[str] = ()
    patch: Sequence[dict[str, Any]] = ()


ALLOWED: Final = AdmissionResponse()


def decode_review(body: bytes) -> AdmissionRequest:
    """Decode a review.

    Raises:
        BadReview: the body is not a review; the message names the field.
    """
    try:
        return msgspec.json.decode(body, type=_Review).request
    except DECODE_ERRORS as error:
        raise BadReview(f"{_NOT_A_REVIEW}: {str(error)[:MAX_WARNING]}") from error


def has_too_many_values(raw: msgspec.Raw) -> bool:
    """Whether decoding would take long. Counting commas is a hundred times cheaper than decoding the values."""
    return bytes(raw).count(b",") > MAX_VALUES


def encode_review(request: AdmissionRequest, response: AdmissionResponse) -> bytes:
    """Encode the AdmissionReview to return."""
    wire: dict[str, Any] = {
        "uid": request.uid,
        "allowed": response.status is None,
    }
    if response.status is not None:
        wire["status"] = response.status
    if response.warnings:
        wire["warnings"] = [warning[:MAX_WARNING] for warning in response.warnings]
    if response.patch:
        wire["patchType"] = "JSONPatch"
        wire["patch"] = base64.b64encode(msgspec.json.encode(response.patch)).decode()
    return msgspec.json.encode({"apiVersion": API_VERSION, "kind": KIND, "response": wire})


def denied(code: int, reason: str, message: str, **details: Any) -> AdmissionResponse:
    """Deny a request with an error in the API server's format."""
    return AdmissionResponse({"code": code, "reason": reason, "message": message, **details})


def review_marker(
    request: AdmissionRequest, *, allowed_labels: Collection[str] = ()
) -> AdmissionResponse:
    """Deny an invalid marker, and warn about fields without effect. Unchanged parts of an update are not validated.

    So a marker stored before the rules existed can still be labelled, and can lose its finalizer on deletion.
    `allowed_labels` are the keys of the manager's --allowed-label-keys.
    """
    if request.operation not in ("CREATE", "UPDATE") or request.sub_resource:
        return ALLOWED
    kind = MARKERS.kind
    name = request.name
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
        return _invalid(marker.metadata.name, errors)
    paths = fields_without_effect(marker.spec)
    return AdmissionResponse(warnings=[f"{path} {_NO_EFFECT}" for path in paths])


def _invalid(name: str, errors: Sequence[Problem]) -> AdmissionResponse:
    listed = ", ".join(map(str, errors))
    if len(errors) > 1:
        listed = f"[{listed}]"
    details = {
        "name": name,
        "kind": MARKERS.kind,
        "causes": [error.cause for error in errors],
    }
    message = f'{MARKERS.kind} "{name}" is invalid: {listed}'
    return denied(422, "Invalid", message, details=details)


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
    for error in marker_errors(
        new.spec,
        old.spec if old else None,
        allowed_labels=allowed_labels,
    ):
        if same_selector and error.path.startswith("spec.selector"):
            continue
        yield error
        if error.reason is ErrorKind.TOO_MANY:
            why = (
                "these items and the fields after them are not validated; there may be more errors"
            )
            yield violation(error.path, ErrorKind.TOO_MANY, why)
            return


_SECRET_HEADER: Final = re.compile(
    r"(?i)auth|cookie|token|secret|passw|credential|session|signature|api[-_]?key|private|access[-_]?key"
)
"""In names of headers that likely hold a credential. Every reader of the pod can see annotations."""


def annotate_pod(request: AdmissionRequest, markers: Iterable[PodProbeMarker]) -> AdmissionResponse:
    """Return the patch for a new pod; `markers` are those of its namespace.

    Never denies a pod, neither itself nor by annotations that the API server refuses: a pod without probes is better than a
    missing pod.
    """
    is_new = request.operation == "CREATE" and not request.sub_resource
    if not is_new or has_too_many_values(request.object):
        return ALLOWED
    try:
        pod = PODS.decode(request.object)
        metadata = msgspec.json.decode(request.object, type=ApiObject).metadata
    except DECODE_ERRORS:
        return ALLOWED
    current = metadata.annotations  # all of them; those of `pod` lack kubectl's
    added = _fitting(_probes(pod, markers), current)
    if not added:
        return ALLOWED
    annotations = {**current, **added}
    return AdmissionResponse(
        patch=[{"op": "add", "path": "/metadata/annotations", "value": annotations}]
    )


def _probes(pod: Pod, markers: Iterable[PodProbeMarker]) -> Iterator[tuple[str, PodContainerProbe]]:
    """The probes of the oldest markers that a provider may run, by marker.

    Without those whose condition type, or whose container and name, an earlier one has.
    """
    conditions = set[str]()
    names = set[tuple[str, str]]()
    matching = [marker for marker in markers if _matches(marker, pod.labels)]
    matching.sort(key=lambda marker: (marker.metadata.creation_timestamp or "", marker.key.name))
    for marker in matching[:MARKERS_PER_POD]:
        for probe in map(clamp_timeout, marker.spec.probes):
            condition = probe.pod_condition_type or ""
            name = (probe.container_name, probe.name)
            if not condition or condition in conditions or reserved_condition_error(condition):
                continue
            if probe.criteria:
                continue  # A provider does not know them.
            if name in names or not pod.container(probe.container_name) or any(probe.errors()):
                continue
            conditions.add(condition)
            names.add(name)
            yield marker.key.name, probe


def _fitting(
    probes: Iterable[tuple[str, PodContainerProbe]], current: Mapping[str, str]
) -> dict[str, str]:
    """The annotations with the probes of as many markers as all annotations of a pod may hold, in order.

    A marker that does not fit is left out as a whole. The manager reports it.
    """
    empty = {SERVERLESS_PROBES_ANNOTATION: "[]", SERVERLESS_MARKERS_ANNOTATION: ""}
    size = annotation_bytes({**current, **empty})
    names: list[str] = []
    fitting: list[bytes] = []
    for name, of_marker in groupby(probes, key=itemgetter(0)):
        wires = [msgspec.json.encode(_without_policies(probe)) for _, probe in of_marker]
        added = len(b",".join([*wires, name.encode(), b""]))
        if size + added < MAX_ANNOTATION_BYTES:
            size += added
            names.append(name)
            fitting += wires
    if not names:
        return {}
    return {
        SERVERLESS_PROBES_ANNOTATION: f"[{b','.join(fitting).decode()}]",
        SERVERLESS_MARKERS_ANNOTATION: ",".join(sorted(names)),
    }


def _matches(marker: PodProbeMarker, labels: Mapping[str, str]) -> bool:
    if marker.deleting:
        return False
    try:
        return compile_selector(marker.spec.selector).matches(labels)
    except ValueError:  # a marker stored before the validation rules existed
        return False


def _without_policies(probe: PodContainerProbe) -> PodContainerProbe:
    """Also set the defaults of httpGet, and drop headers that look secret."""
    probe = msgspec.structs.replace(probe, marker_policy=())
    action = probe.probe.http_get
    if action is None:
        return probe
    headers = tuple(
        header for header in action.http_headers if not _SECRET_HEADER.search(header.name)
    )
    completed = msgspec.structs.replace(action.with_defaults(), http_headers=headers)
    for_provider = msgspec.structs.replace(probe.probe, http_get=completed)
    return msgspec.structs.replace(probe, probe=for_provider)
