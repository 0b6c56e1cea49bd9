"""The links from a marker to NodePodProbe.spec, one function for each. Pure."""

from operator import attrgetter
from typing import Final

import msgspec

from kruise_probe.api.meta import DECODE_ERRORS
from kruise_probe.api.names import (
    MARKER_FINALIZER,
    REASON_CONTAINER_FINISHED,
    REASON_NO_ROOM,
    SERVERLESS_PROBES_ANNOTATION,
)
from kruise_probe.api.problems import did_you_mean
from kruise_probe.api.v1alpha1 import PodContainerProbe, PodProbeMarker
from kruise_probe.controllers.conditions import (
    MARKER_DELETING,
    MARKER_HELD,
)
from kruise_probe.controllers.limits import (
    ANNOTATIONS_FULL,
    LIMITS_OF_SETS,
    has_no_place_in_annotations,
)
from kruise_probe.controllers.readiness import CLAIMED_BY_ANOTHER
from kruise_probe.hints.selectors import selector_text
from kruise_probe.inspection.link import Link, ProbeContext, broken, ok, paused, waiting


def marker_link(context: ProbeContext) -> Link:
    marker = context.marker
    if marker.deleting:
        text = f"PodProbeMarker {marker.key} is being deleted; {finalizers_text(context.source)}"
        return waiting("marker", deletion_reason(context.source), text, **context.names)
    if context.claim is None and context.left_out not in LIMITS_OF_SETS:
        errors = "its name is not unique"
        if marker.errors:
            errors = "; ".join(map(str, marker.errors))
        return broken("marker", "InvalidSpec", f"the probe is invalid and ignored: {errors}")
    if marker.paused:
        return paused("marker", f"PodProbeMarker {marker.key}", "podprobemarker", marker.key)
    return ok("marker", f"{marker.key} selects {selector_text(marker.selector)}")


def finalizers_text(marker: PodProbeMarker) -> str:
    return f"finalizers that block it: {', '.join(marker.metadata.finalizers) or 'none'}"


def deletion_reason(marker: PodProbeMarker) -> str:
    """Of a marker that is being deleted: whether only finalizers of others keep it."""
    finalizers = marker.metadata.finalizers or (MARKER_FINALIZER,)
    return MARKER_DELETING if MARKER_FINALIZER in finalizers else MARKER_HELD


def pod_link(context: ProbeContext) -> Link:
    pod = context.pod
    if pod.deleting:
        return broken("pod", "PodTerminating", "the pod is terminating and no longer probed")
    if not pod.active:
        return broken("pod", "PodFinished", f"the pod has finished ({pod.phase})")
    if pod.paused:
        return paused("pod", "the pod", "pod", pod.key)
    if pod.mirror:
        return broken("pod", "StaticPod", "a static pod; only its kubelet may update it")
    if not pod.node:
        text = "the pod is not scheduled"
        if pod.unscheduled:
            text += f": {pod.unscheduled}"
        return broken("pod", "PodNotScheduled", text, **context.names)
    nodes = context.snapshot.nodes
    if nodes is not None and pod.node not in nodes:
        return broken("pod", "NodeNotFound", f"Node {pod.node} does not exist")
    if not pod.initialized and not context.virtual:
        return _not_initialized_link(context)
    return ok("pod", f"{pod.phase} on {pod.node}, {pod.ip or 'no address yet'}")


def _not_initialized_link(context: ProbeContext) -> Link:
    reason = "PodNotStarted"
    text = "the kubelet has not started the pod"
    if context.pod.not_probed:
        reason = "PodNotInitialized"
        text = "init containers of the pod have not completed"
    stopped = [f"{name} ({why})" for name, why in sorted(context.pod.stopped.items())]
    if stopped:
        text += f"; not running: {', '.join(stopped)}"
    return broken("pod", reason, text, **context.names)


def container_link(context: ProbeContext) -> Link:
    pod = context.pod
    name = context.probe.container_name
    container = pod.container(name)
    if container is None:
        return _no_container_link(context, name)
    if context.virtual:
        return ok("container", name)
    if name in pod.exit_codes:
        code = pod.exit_codes[name]
        text = f"container {name} has finished with exit code {code}, and its restart policy does not restart it"
        if code:
            return broken("container", REASON_CONTAINER_FINISHED, text, **context.names)
        return waiting("container", REASON_CONTAINER_FINISHED, text, "nothing: it completed")
    if name in pod.stopped:
        reason = "ContainerNotCreated"
        if name in pod.ran:
            reason = "ContainerNotRunning"
        text = f"container {name} is not running: {pod.stopped[name]}"
        return broken("container", reason, text, **context.names)
    if container.has_startup_probe and name not in pod.started:
        text = f"the startupProbe of container {name} has not succeeded yet"
        return waiting("container", "ContainerNotStarted", text)
    return ok("container", f"{name} is running")


def _no_container_link(context: ProbeContext, name: str) -> Link:
    if name in context.pod.not_probed:
        text = f"{name} is an init or ephemeral container; only regular containers and sidecars are probed"
        return broken("container", "ContainerNotProbed", text)
    names = [container.name for container in context.pod.containers]
    text = f"the pod has no container {name}, only {', '.join(names)}.{did_you_mean(name, names)}"
    return broken("container", "ContainerNotFound", text.removesuffix("."))


def port_link(context: ProbeContext) -> Link:
    probe = context.probe.probe
    action = probe.http_get or probe.tcp_socket or probe.grpc
    container = context.pod.container(context.probe.container_name)
    if action is None or container is None or isinstance(action.port, int):
        return ok("port")
    port = action.port
    number = container.port_number(port)
    if number is not None:
        return ok("port", f"{port} is {number}")
    ports = [name for name, _ in container.ports]
    declared = "it declares no ports with a name"
    if ports:
        declared = f"only {', '.join(ports)}"
    text = f"container {container.name} has no port named {port}, {declared}.{did_you_mean(port, ports)}"
    return broken("port", "PortNameUnknown", text.removesuffix("."))


def provider_link(context: ProbeContext) -> Link:
    """The annotation that tells a serverless provider what to probe, and the condition that it writes."""
    pod = context.pod
    probe = context.probe
    annotation = pod.annotations.get(SERVERLESS_PROBES_ANNOTATION)
    if has_no_place_in_annotations(pod, context.marker):
        return broken("provider", *ANNOTATIONS_FULL)
    if context.left_out is not None:
        return broken("provider", *context.left_out)
    if annotation is None:
        text = (
            f"the pod on virtual node {pod.node} has no annotation {SERVERLESS_PROBES_ANNOTATION}"
        )
        return broken("provider", "NotInjected", text)
    if not probe.pod_condition_type:
        text = "the probe has no podConditionType, so the provider cannot report its result"
        return broken("provider", "ConditionTypeMissing", text)
    if conflict := context.conflict("condition type"):  # the webhook leaves the probe out
        return broken("provider", CLAIMED_BY_ANOTHER, conflict)
    if text := _not_injected(probe, annotation):
        remedy = "create the pod again, or rename the probe if another marker has one of this name"
        return broken("provider", "NotInjected", text, remedy)
    if context.result is None:
        text = f"the provider has not set condition {probe.pod_condition_type} on the pod"
        return broken("provider", "ProviderSilent", text)
    return ok("provider", "the provider has set the condition")


def _not_injected(probe: PodContainerProbe, annotation: str) -> str:
    """Why the annotation does not tell the provider to run the probe; empty if it does."""
    try:
        injected = msgspec.json.decode(annotation, type=tuple[PodContainerProbe, ...])
    except DECODE_ERRORS as error:
        return f"annotation {SERVERLESS_PROBES_ANNOTATION} is not a list of probes: {error}"
    key = attrgetter("name", "container_name", "pod_condition_type")
    if key(probe) in map(key, injected):
        return ""
    return f"the pod was created without probe {probe.name} of {probe.container_name} in its annotation"


def manager_link(context: ProbeContext) -> Link:
    """Never broken by itself: without leader election a working manager renews no Lease. See `missing_manager_link`."""
    snapshot = context.snapshot
    if snapshot.leases is None:
        return ok("manager", "unknown: no permission to list leases")
    if snapshot.manager_problem:
        return ok("manager", f"{snapshot.manager_problem}; nothing is left to write")
    if snapshot.leader:
        return ok("manager", f"{snapshot.leader} is the leader")
    return ok("manager")


def missing_manager_link(context: ProbeContext, end: Link) -> Link | None:
    """The broken link of the manager, if `end` waits for a write of a manager and none leads."""
    problem = context.snapshot.manager_problem
    if not problem or end.reason not in _WRITTEN_BY_MANAGER:
        return None
    text = f"{problem}; {end.name}: {end.text}"
    return broken("manager", "ManagerNotRunning", text, **context.names)


_WRITTEN_BY_MANAGER: Final = frozenset(
    {"MarkerNew", "EntryMissing", "EntryBehind", "ResultNew", "ConditionBehind", "MarksBehind"}
)


def node_pod_probe_link(context: ProbeContext) -> Link:
    link = "NodePodProbe"
    pod = context.pod
    snapshot = context.snapshot
    if context.left_out is not None:
        return broken(link, *context.left_out)
    if snapshot.node_pod_probes is None:
        return ok(link, "unknown: no permission to list nodepodprobes")
    entry = context.entry
    current = context.current
    if entry is not None and current == context.planned(pod.started) and entry.ip == pod.ip:
        return ok(link, f"{pod.node} contains the probe")
    if snapshot.is_recent(context.source.metadata.creation_timestamp):
        return waiting(link, "MarkerNew", "the marker was created a few seconds ago")
    what = f"NodePodProbe {pod.node} still contains an earlier version of the probe"
    if current is not None:
        return broken(link, "EntryBehind", what + _why_behind(context), **context.names)
    no_room = context.reported(REASON_NO_ROOM, f" {pod.node} (")
    if no_room:
        return broken(link, REASON_NO_ROOM, f"the marker's status says: {no_room}")
    what = f"NodePodProbe {pod.node} does not exist"
    if pod.node in snapshot.node_pod_probes:
        what = f"NodePodProbe {pod.node} does not contain {context.name} of this pod"
    return broken(link, "EntryMissing", what + _why_behind(context), **context.names)


def _why_behind(context: ProbeContext) -> str:
    """Why the manager has not applied the marker, from the marker's status; or empty."""
    status = context.source.status
    if status is None or not status.observed_generation:
        return "; no manager has written this marker's status"
    generation = context.source.metadata.generation or 0
    if status.observed_generation < generation:
        return f"; the manager has processed generation {status.observed_generation} of the marker, the newest is {generation}"
    for condition in status.conditions:
        if (condition.type, condition.status) in (("Synced", "False"), ("Degraded", "True")):
            return f"; the marker's status says: {condition.message}"
    return ""
