"""Probe annotations on new pods, for serverless providers that run the probes instead of our daemon.

The node is not known at creation, so every pod that a marker matches gets both annotations.

Source: Kruise pkg/webhook/pod/mutating/pod_probe_marker.go.
Differs: the oldest marker is first, and wins if probes name the same condition. Values that the client has set in
these annotations are overwritten. Headers that look secret are omitted.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from kruise_probe.api.labels import MAX_ANNOTATION_BYTES, annotation_bytes, compile_selector
from kruise_probe.api.meta import DECODE_ERRORS
from kruise_probe.api.names import SERVERLESS_MARKERS_ANNOTATION, SERVERLESS_PROBES_ANNOTATION
from kruise_probe.api.pods import Pod
from kruise_probe.api.reserved import reserved_condition_error
from kruise_probe.api.resources import PODS
from kruise_probe.api.v1alpha1 import PodContainerProbe, PodProbeMarker
from kruise_probe.api.validation import clamp_timeout
from kruise_probe.webhook.admission import (
    ALLOWED,
    AdmissionRequest,
    AdmissionResponse,
    has_too_many_values,
)


class _Meta(msgspec.Struct, frozen=True):
    annotations: dict[str, str] | None = None


class _Annotated(msgspec.Struct, frozen=True):
    metadata: _Meta


_SECRET_HEADER: Final = re.compile(
    r"(?i)auth|cookie|token|secret|passw|credential|session|signature|api[-_]?key|private|access[-_]?key"
)
"""In names of headers that likely hold a credential. Every reader of the pod can see annotations."""

_annotated = msgspec.json.Decoder(_Annotated)


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
    except DECODE_ERRORS:
        return ALLOWED
    current = _annotated.decode(request.object).metadata.annotations
    annotations = _fitting(_probes(pod, markers), current or {})
    if not annotations:
        return ALLOWED
    if current is not None:  # the annotations that the pod has stay
        annotations = current | annotations
    return AdmissionResponse(
        patch=[{"op": "add", "path": "/metadata/annotations", "value": annotations}]
    )


def _probes(pod: Pod, markers: Iterable[PodProbeMarker]) -> Iterator[tuple[str, PodContainerProbe]]:
    """The probes that a provider may run, by marker, oldest first.

    Without those whose condition type, or whose container and name, an earlier one has.
    """
    seen: set[object] = {None, ""}
    ordered = sorted(markers, key=lambda m: (m.metadata.creation_timestamp or "", m.key.name))
    for marker in ordered:
        if marker.deleting or not _matches(marker, pod.labels):
            continue
        for probe in map(clamp_timeout, marker.spec.probes or ()):
            condition, key = probe.pod_condition_type, (probe.container_name, probe.name)
            if condition in seen or key in seen or not pod.container(probe.container_name):
                continue
            if reserved_condition_error(condition or "") is None and not any(probe.errors()):
                seen |= {condition, key}
                yield marker.key.name, probe


def _fitting(
    probes: Iterable[tuple[str, PodContainerProbe]], current: Mapping[str, str]
) -> dict[str, str]:
    """The annotations with the probes of as many markers as all annotations of a pod may hold, in order.

    A marker that does not fit is left out as a whole. The manager reports it.
    """
    encoded: dict[str, list[str]] = {}
    for name, probe in probes:
        wire = msgspec.json.encode(_without_policies(probe)).decode()
        encoded.setdefault(name, []).append(wire)
    empty = {SERVERLESS_PROBES_ANNOTATION: "[]", SERVERLESS_MARKERS_ANNOTATION: ""}
    size = annotation_bytes({**current, **empty})
    fitting: list[str] = []
    for name, wires in encoded.items():
        added = sum(len(each.encode()) + len(",") for each in wires) + len(name) + len(",")
        if size + added < MAX_ANNOTATION_BYTES:
            size += added
            fitting.append(name)
    if not fitting:
        return {}
    return {
        SERVERLESS_PROBES_ANNOTATION: f"[{','.join(each for name in fitting for each in encoded[name])}]",
        SERVERLESS_MARKERS_ANNOTATION: ",".join(sorted(fitting)),
    }


def _matches(marker: PodProbeMarker, labels: Mapping[str, str]) -> bool:
    try:
        return compile_selector(marker.spec.selector).matches(labels)
    except ValueError:  # a marker stored before the validation rules existed
        return False


def _without_policies(probe: PodContainerProbe) -> PodContainerProbe:
    """Also set the defaults of httpGet, and drop headers that look secret."""
    probe = msgspec.structs.replace(probe, marker_policy=None)
    action = probe.probe.http_get
    if action is None:
        return probe
    headers = tuple(
        header for header in action.http_headers or () if not _SECRET_HEADER.search(header.name)
    )
    completed = msgspec.structs.replace(action.with_defaults(), http_headers=headers or None)
    for_provider = msgspec.structs.replace(probe.probe, http_get=completed)
    return msgspec.structs.replace(probe, probe=for_provider)
