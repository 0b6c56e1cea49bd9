"""The first half of the way: from a marker to what the node is asked. Pure; one function for each link."""

from kruise_probe.api.core import Probe
from kruise_probe.api.names import REASON_NO_ROOM
from kruise_probe.controllers.markers.census import SELECTOR_CYCLE
from kruise_probe.controllers.nodes.plan import probes_of_marker
from kruise_probe.inspection.link import Case, Link, Standing, broken, waiting
from kruise_probe.inspection.remedies import manager_remedy
from kruise_probe.inspection.selection import alike, selector_text


def marker_link(case: Case) -> Link:
    marker = case.marker
    if marker.deleting:
        return broken("marker", "MarkerDeleting", f"PodProbeMarker {marker.key} is being deleted")
    if case.claim is None:
        errors = "; ".join(str(each) for each in marker.errors) or "the probe is not valid"
        return broken("marker", "InvalidSpec", f"the probe is left out as invalid: {errors}")
    cycle = case.snapshot.cycle_through(marker.key)
    if cycle:
        return broken(
            "marker", SELECTOR_CYCLE, f"the pod may be selected and left again and again: {cycle}"
        )
    return Link("marker", Standing.OK, f"{marker.key} selects {selector_text(marker.selector)}")


def pod_link(case: Case) -> Link:
    pod = case.seen.pod
    if pod.deleting:
        return broken("pod", "PodTerminating", "the pod is terminating and is probed no more")
    if not pod.active:
        return broken("pod", "PodFinished", f"the pod has ended ({pod.phase})")
    if pod.mirror:
        return broken("pod", "StaticPod", "a static pod, which only its node's kubelet may mark")
    if not pod.node:
        why = f": {case.seen.unscheduled}" if case.seen.unscheduled else ""
        return broken("pod", "PodNotScheduled", f"the pod has no node yet{why}")
    nodes = case.snapshot.nodes
    if nodes is not None and pod.node not in nodes:
        return broken("pod", "NodeNotFound", f"there is no Node {pod.node}")
    if not pod.initialized and not case.virtual:
        stopped = [f"{name} ({why})" for name, why in sorted(case.seen.stopped.items())]
        detail = f"; not running: {', '.join(stopped)}" if stopped else ""
        return broken(
            "pod", "PodNotInitialized", f"init containers of the pod have not ended{detail}"
        )
    return Link("pod", Standing.OK, f"{pod.phase} on {pod.node}, {pod.ip or 'no address yet'}")


def container_link(case: Case) -> Link:
    pod, name = case.seen.pod, case.probe.container_name
    container = pod.container(name)
    if container is None:
        if name in case.seen.not_probed:
            text = f"{name} is an init or ephemeral container; regular containers and sidecars are probed"
            return broken("container", "ContainerNotProbed", text)
        there = [each.name for each in pod.containers]
        hint = alike(name, there)
        text = f"the pod has no container {name}{hint}; it has {', '.join(there) or 'none'}"
        return broken("container", "ContainerMissing", text)
    if case.virtual:
        return Link("container", Standing.OK, name)
    if name in case.seen.stopped:
        text = f"container {name} does not run: {case.seen.stopped[name]}"
        return broken("container", "ContainerNotRunning", text)
    if container.has_startup_probe and name not in pod.started:
        text = f"container {name} has a startupProbe that has not succeeded yet"
        return waiting("container", "ContainerNotStarted", text)
    return Link("container", Standing.OK, f"{name} runs")


def port_name_of(probe: Probe) -> str:
    """The container port that a probe names, or empty."""
    action = probe.http_get or probe.tcp_socket
    return action.port if action is not None and isinstance(action.port, str) else ""


def port_link(case: Case) -> Link:
    name = port_name_of(case.probe.probe)
    container = case.seen.pod.container(case.probe.container_name)
    if not name or container is None:
        return Link("port", Standing.OK, "")
    number = container.port_number(name)
    if number is None:
        there = [port for port, _ in container.ports]
        text = (
            f"container {container.name} has no port named {name}{alike(name, there)}; "
            f"it has {', '.join(there) or 'none with a name'}"
        )
        return broken("port", "PortNameUnknown", text)
    return Link("port", Standing.OK, f"{name} is {number}")


def node_pod_probe_link(case: Case) -> Link:
    link, pod, snapshot = "NodePodProbe", case.seen.pod, case.snapshot
    if case.left_out is not None:
        return broken(link, case.left_out.reason, case.left_out.why, case.left_out.remedy)
    if snapshot.reports is None:
        return Link(link, Standing.OK, "not known: you may not list nodepodprobes")
    wanted = next(
        each
        for each in probes_of_marker(case.marker, pod.containers, pod.started)
        if each.name == case.name
    )
    entry = snapshot.entry_of(pod)
    there = next(
        (each for each in (entry.probes if entry else None) or () if each.name == case.name), None
    )
    if entry is not None and there == wanted and entry.ip == pod.ip:
        return Link(link, Standing.OK, f"{pod.node} asks for it")
    if snapshot.settling(case.source.metadata.creation_timestamp):
        return waiting(link, "MarkerNew", "the marker is seconds old; the manager is at it")
    crowded = _crowded_out(case) if there is None else ""
    if crowded:
        return broken(link, REASON_NO_ROOM, f"the manager says: {crowded}")
    if pod.node not in snapshot.reports:
        what = f"there is no NodePodProbe {pod.node}"
        reason = "EntryMissing"
    elif there is None:
        what = f"NodePodProbe {pod.node} does not ask for {case.name} of this pod"
        reason = "EntryMissing"
    else:
        what = f"NodePodProbe {pod.node} still asks for an earlier version"
        reason = "EntryBehind"
    return broken(link, reason, what + _behind(case), manager_remedy(snapshot.manager_trouble))


def _crowded_out(case: Case) -> str:
    """What the marker's own status says of pods of this node that found no room in its NodePodProbe."""
    for condition in (case.source.status and case.source.status.conditions) or ():
        message = condition.message or ""
        if condition.reason == REASON_NO_ROOM and f" {case.seen.pod.node} (" in message:
            return message
    return ""


def _behind(case: Case) -> str:
    """What the marker's own status says about why it is not followed."""
    source = case.source
    if source.status is None:
        return "; no manager has ever written this marker's status"
    generation = source.metadata.generation or 0
    if source.status.observed_generation < generation:
        seen = source.status.observed_generation
        return f"; the manager has seen generation {seen} of the marker, it is at {generation}"
    for condition in source.status.conditions or ():
        if condition.type in ("Synced", "Degraded") and condition.status == (
            "False" if condition.type == "Synced" else "True"
        ):
            return f"; the manager says: {condition.message}"
    return ""
