"""The links from a marker to NodePodProbe.spec, one function for each. Pure."""

from collections.abc import Sequence
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
from kruise_probe.controllers.conditions import MARKER_DELETING, MARKER_HELD
from kruise_probe.controllers.limits import (
    ANNOTATIONS_FULL,
    LIMITS_OF_SETS,
    NO_ROOM,
    has_no_place_in_annotations,
)
from kruise_probe.controllers.readiness import CLAIMED_BY_ANOTHER, INVALID_SPEC
from kruise_probe.hints.selectors import selector_text
from kruise_probe.inspection.link import Found, Link, ProbeContext, link_of, of_limit, paused
from kruise_probe.inspection.seen_pods import SeenPod

NO_PERMISSION: Final = "unknown: no permission to list nodepodprobes"


def marker_link(context: ProbeContext) -> Found:
    marker = context.marker
    if marker.deleting:
        found = deletion(context.source)
        text = f"PodProbeMarker {marker.key} is being deleted; {found.text}"
        return found._replace(text=text)
    if context.claim is None and context.left_out not in LIMITS_OF_SETS:
        texts = map(str, marker.errors)
        errors = "; ".join(texts) or "its name is not unique"
        return Found(f"the probe is invalid and ignored: {errors}", INVALID_SPEC)
    if marker.paused:
        return paused(f"PodProbeMarker {marker.key}")
    selector = selector_text(marker.selector)
    return Found(f"{marker.key} selects {selector}")


def deletion(marker: PodProbeMarker) -> Found:
    """What blocks the deletion of a marker; the reason says whether only finalizers of others do."""
    finalizers = marker.metadata.finalizers
    listed = ", ".join(finalizers) or "none"
    text = f"finalizers that block it: {listed}"
    if finalizers and MARKER_FINALIZER not in finalizers:
        return Found(text, MARKER_HELD)
    return Found(text, MARKER_DELETING)


def pod_link(context: ProbeContext) -> Found:
    pod = context.pod
    if pod.deleting:
        return Found("the pod is terminating and no longer probed", "PodTerminating")
    if not pod.active:
        return Found(f"the pod has finished ({pod.phase})", "PodFinished")
    if pod.paused:
        return paused("the pod")
    if pod.mirror:
        return Found("a static pod; only its kubelet may update it", "StaticPod")
    if not pod.node:
        text = "the pod is not scheduled"
        if pod.unscheduled:
            text += f": {pod.unscheduled}"
        return Found(text, "PodNotScheduled")
    nodes = context.snapshot.nodes
    if nodes is not None and pod.node not in nodes:
        return Found(f"Node {pod.node} does not exist", "NodeNotFound")
    if not pod.initialized and not context.virtual:
        return _not_initialized(pod)
    address = pod.ip or "no address yet"
    where = f"{pod.phase} on {pod.node}"
    return Found(f"{where}, {address}")


def _not_initialized(pod: SeenPod) -> Found:
    reason = "PodNotStarted"
    text = "the kubelet has not started the pod"
    if pod.not_probed:
        reason = "PodNotInitialized"
        text = "init containers of the pod have not completed"
    stopped = []
    for name, why in sorted(pod.stopped.items()):
        stopped.append(f"{name} ({why})")
    if stopped:
        names = ", ".join(stopped)
        text += f"; not running: {names}"
    return Found(text, reason)


def container_link(context: ProbeContext) -> Found:
    pod = context.pod
    name = context.probe.container_name
    container = pod.container(name)
    if container is None:
        return _no_container(pod, name)
    if context.virtual:
        return Found(name)
    if name in pod.exit_codes:
        code = pod.exit_codes[name]
        text = f"container {name} has finished with exit code {code}, and its restart policy does not restart it"
        if not code:
            return Found(
                text,
                REASON_CONTAINER_FINISHED,
                "nothing: it completed",
                waits=True,
            )
        return Found(text, REASON_CONTAINER_FINISHED)
    if name in pod.stopped:
        text = f"container {name} is not running: {pod.stopped[name]}"
        if name in pod.ran:
            return Found(text, "ContainerNotRunning")
        return Found(text, "ContainerNotCreated")
    if container.has_startup_probe and name not in pod.started:
        text = f"the startupProbe of container {name} has not succeeded yet"
        return Found(text, "ContainerNotStarted")
    return Found(f"{name} is running")


def _no_container(pod: SeenPod, name: str) -> Found:
    if name in pod.not_probed:
        text = f"{name} is an init or ephemeral container; only regular containers and sidecars are probed"
        return Found(text, "ContainerNotProbed")
    names = [container.name for container in pod.containers]
    listed = ", ".join(names)
    meant = _meant(name, names)
    text = f"the pod has no container {name}, only {listed}{meant}"
    return Found(text, "ContainerNotFound")


def _meant(name: str, names: Sequence[str]) -> str:
    close = did_you_mean(name, names)
    if not close:
        return ""
    return f".{close}"


def port_link(context: ProbeContext) -> Found:
    probe = context.probe.probe
    action = probe.http_get or probe.tcp_socket or probe.grpc
    container = context.pod.container(context.probe.container_name)
    if action is None or container is None:
        return Found()
    port = action.port
    if isinstance(port, int):
        return Found()
    number = container.port_number(port)
    if number is not None:
        return Found(f"{port} is {number}")
    ports = [name for name, _ in container.ports]
    declared = "it declares no ports with a name"
    if ports:
        names = ", ".join(ports)
        declared = f"only {names}"
    meant = _meant(port, ports)
    what = f"container {container.name} has no port named {port}"
    text = f"{what}, {declared}{meant}"
    return Found(text, "PortNameUnknown")


def provider_link(context: ProbeContext) -> Found:
    """The annotation that tells a serverless provider what to probe, and the condition that it writes."""
    pod = context.pod
    probe = context.probe
    annotation = pod.annotations.get(SERVERLESS_PROBES_ANNOTATION)
    if has_no_place_in_annotations(pod, context.marker):
        return of_limit(ANNOTATIONS_FULL)
    if context.left_out is not None:
        return of_limit(context.left_out)
    if annotation is None:
        text = (
            f"the pod on virtual node {pod.node} has no annotation {SERVERLESS_PROBES_ANNOTATION}"
        )
        return Found(text, "NotInjected")
    if not probe.pod_condition_type:
        text = "the probe has no podConditionType, so the provider cannot report its result"
        return Found(text, "ConditionTypeMissing")
    if conflict := context.conflict(of_condition=True):  # the webhook leaves the probe out
        return Found(conflict, CLAIMED_BY_ANOTHER)
    if text := _not_injected(probe, annotation):
        remedy = "create the pod again, or rename the probe if another marker has one of this name"
        return Found(text, "NotInjected", remedy)
    if context.result is None:
        text = f"the provider has not set condition {probe.pod_condition_type} on the pod"
        return Found(text, "ProviderSilent")
    return Found("the provider has set the condition")


def _not_injected(probe: PodContainerProbe, annotation: str) -> str:
    """Why the annotation does not tell the provider to run the probe; empty if it does."""
    try:
        injected = msgspec.json.decode(annotation, type=tuple[PodContainerProbe, ...])
    except DECODE_ERRORS as error:
        return f"annotation {SERVERLESS_PROBES_ANNOTATION} is not a list of probes: {error}"
    key = attrgetter("name", "container_name", "pod_condition_type")
    keys = map(key, injected)
    if key(probe) in keys:
        return ""
    return f"the pod was created without probe {probe.name} of {probe.container_name} in its annotation"


def manager_link(context: ProbeContext) -> Found:
    """Never broken by itself: without leader election a working manager renews no Lease. See `missing_manager_link`."""
    snapshot = context.snapshot
    if snapshot.leases is None:
        return Found("unknown: no permission to list leases")
    problem = snapshot.manager_problem
    if problem:
        return Found(f"{problem}; nothing is left to write")
    leader = snapshot.leader
    if not leader:
        return Found()
    return Found(f"{leader} is the leader")


def missing_manager_link(context: ProbeContext, end: Link) -> Link | None:
    """The broken link of the manager, if `end` waits for a write of a manager and none leads."""
    problem = context.snapshot.manager_problem
    if not problem or end.reason not in _WRITTEN_BY_MANAGER:
        return None
    text = f"{problem}; {end.name}: {end.text}"
    found = Found(text, "ManagerNotRunning")
    return link_of("manager", found, **context.names)


_WRITTEN_BY_MANAGER: Final = frozenset(
    {"MarkerNew", "EntryMissing", "EntryBehind", "ResultNew", "ConditionBehind", "MarksBehind"}
)


def node_pod_probe_link(context: ProbeContext) -> Found:
    pod = context.pod
    snapshot = context.snapshot
    if context.left_out is not None:
        return of_limit(context.left_out)
    if snapshot.node_pod_probes is None:
        return Found(NO_PERMISSION)
    entry = context.entry
    current = context.current
    if entry is not None and entry.ip == pod.ip:
        planned = context.planned(pod.started)
        if current == planned:
            return Found(f"{pod.node} contains the probe")
    created = context.source.metadata.creation_timestamp
    if snapshot.is_recent(created):
        return Found("the marker was created a few seconds ago", "MarkerNew")
    what = f"NodePodProbe {pod.node} "
    why = _why_behind(context)
    if current is not None:
        return Found(f"{what}still contains an earlier version of the probe{why}", "EntryBehind")
    if pod.node not in snapshot.node_pod_probes:
        return Found(f"{what}does not exist{why}", "EntryMissing")
    is_reported = any(problem.reason == REASON_NO_ROOM for problem in context.source.conditions)
    if is_reported and context.needed_bytes > snapshot.room_bytes(pod.node):
        return of_limit(NO_ROOM)
    return Found(f"{what}does not contain {context.name} of this pod{why}", "EntryMissing")


def _why_behind(context: ProbeContext) -> str:
    """Why the manager has not applied the marker, from the marker's status; or empty."""
    status = context.source.status
    if status is None or not status.observed_generation:
        return "; no manager has written this marker's status"
    observed = status.observed_generation
    newest = context.source.metadata.generation or 0
    if observed < newest:
        return f"; the manager has processed generation {observed} of the marker, the newest is {newest}"
    for condition in status.conditions:
        is_behind = condition.type == "Synced" and condition.status == "False"
        is_degraded = condition.type == "Degraded" and condition.status == "True"
        if is_behind or is_degraded:
            return f"; the marker's status says: {condition.message}"
    return ""
