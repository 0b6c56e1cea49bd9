"""Whether a marker may be stored, and what somebody should know who edits a NodePodProbe by hand.

Source: Kruise pkg/webhook/podprobemarker/validating; apiextensions' ratcheting for what is left alone on updates.
Differs: all errors at once, each with its field; a NodePodProbe is never refused, since one bad probe would then
stop every other probe of its node: the daemon refuses that probe alone.
"""

import msgspec

from kruise_probe.api.resources import MARKERS, NODE_POD_PROBES
from kruise_probe.api.v1alpha1 import NodePodProbe, PodProbeMarker
from kruise_probe.api.validation import FieldError, idle_fields, validate_marker, validate_probe
from kruise_probe.webhook.admission import (
    ALLOWED,
    Request,
    Verdict,
    present,
    refused,
    undecodable,
)


def judge_marker(request: Request) -> Verdict:
    """Refuses what breaks a rule, and warns of what has no effect; parts that an update leaves as they were are not
    judged again.

    So a marker from before the rules can be labelled, and loses its finalizer when it is deleted.
    """
    if request.operation not in ("CREATE", "UPDATE") or request.sub_resource:
        return ALLOWED
    try:
        marker = MARKERS.decode(request.object)
    except msgspec.MsgspecError as error:
        return undecodable(MARKERS.kind, request.name, error)
    old = _old_marker(request)
    errors = validate_marker(marker.spec, old.spec if old else None)
    if old:
        errors = [each for each in errors if not _is_unchanged(each, old, marker)]
    if errors:
        return refused(MARKERS.kind, marker.metadata.name, errors)
    idle = idle_fields(marker.spec)
    return Verdict(warnings=[f"{each} has no effect: nothing is restarted" for each in idle])


def _old_marker(request: Request) -> PodProbeMarker | None:
    """None on creation, and for one that was stored before its CRD had types."""
    if not present(request.old_object):
        return None
    try:
        return MARKERS.decode(request.old_object)
    except msgspec.MsgspecError:
        return None


def _is_unchanged(error: FieldError, old: PodProbeMarker, new: PodProbeMarker) -> bool:
    if error.path.startswith("spec.selector"):
        return old.spec.selector == new.spec.selector
    return old.spec == new.spec


def judge_node_pod_probe(request: Request) -> Verdict:
    """Allows always; warns of what the daemon will refuse."""
    if request.operation not in ("CREATE", "UPDATE") or request.sub_resource:
        return ALLOWED
    try:
        node = NODE_POD_PROBES.decode(request.object)
    except msgspec.MsgspecError as error:
        return Verdict(warnings=[f"the daemon cannot read this: {error}"])
    return Verdict(warnings=[f"the daemon will refuse {each}" for each in _errors_of(node)])


def _errors_of(node: NodePodProbe) -> list[FieldError]:
    return [
        error
        for place, pod in enumerate(node.spec.pod_probes or ())
        for index, each in enumerate(pod.probes or ())
        for error in validate_probe(each.probe, f"spec.podProbes[{place}].probes[{index}].probe")
    ]
