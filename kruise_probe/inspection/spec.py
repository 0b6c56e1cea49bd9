"""The first half of a trace: from a marker to NodePodProbe.spec. Pure; one function for each link."""

from kruise_probe.api.core import Probe
from kruise_probe.api.names import REASON_NO_ROOM
from kruise_probe.controllers.markers.census import SELECTOR_CYCLE
from kruise_probe.controllers.nodes.plan import probes_of_marker
from kruise_probe.inspection.link import Finding, Link, Standing, broken, waiting
from kruise_probe.inspection.remedies import manager_remedy
from kruise_probe.inspection.selection import alike, selector_text


def marker_link(finding: Finding) -> Link:
    marker = finding.marker
    if marker.deleting:
        return broken("marker", "MarkerDeleting", f"PodProbeMarker {marker.key} is being deleted")
    if finding.claim is None:
        errors = "; ".join(str(each) for each in marker.errors) or "the probe is not valid"
        return broken("marker", "InvalidSpec", f"the probe is left out as invalid: {errors}")
    cycle = finding.snapshot.cycle_through(marker.key)
    if cycle:
        return broken(
            "marker", SELECTOR_CYCLE, f"the pod may be selected and left again and again: {cycle}"
        )
    return Link("marker", Standing.OK, f"{marker.key} selects {selector_text(marker.selector)}")


def pod_link(finding: Finding) -> Link:
    pod = finding.seen.pod
    if pod.deleting:
        return broken("pod", "PodTerminating", "the pod is terminating and is probed no more")
    if not pod.active:
        return broken("pod", "PodFinished", f"the pod has ended ({pod.phase})")
    if pod.mirror:
        return broken("pod", "StaticPod", "a static pod, which only its node's kubelet may mark")
    if not pod.node:
        why = f": {finding.seen.unscheduled}" if finding.seen.unscheduled else ""
        return broken("pod", "PodNotScheduled", f"the pod has no node yet{why}")
    nodes = finding.snapshot.nodes
    if nodes is not None and pod.node not in nodes:
        return broken("pod", "NodeNotFound", f"there is no Node {pod.node}")
    if not pod.initialized and not finding.virtual:
        stopped = [f"{name} ({why})" for name, why in sorted(finding.seen.stopped.items())]
        detail = f"; not running: {', '.join(stopped)}" if stopped else ""
        return broken(
            "pod", "PodNotInitialized", f"init containers of the pod have not ended{detail}"
        )
    return Link("pod", Standing.OK, f"{pod.phase} on {pod.node}, {pod.ip or 'no address yet'}")


def container_link(finding: Finding) -> Link:
    pod, name = finding.seen.pod, finding.probe.container_name
    container = pod.container(name)
    if container is None:
        if name in finding.seen.not_probed:
            text = f"{name} is an init or ephemeral container; regular containers and sidecars are probed"
            return broken("container", "ContainerNotProbed", text)
        names = [each.name for each in pod.containers]
        hint = alike(name, names)
        text = f"the pod has no container {name}{hint}; it has {', '.join(names) or 'none'}"
        return broken("container", "ContainerMissing", text)
    if finding.virtual:
        return Link("container", Standing.OK, name)
    if name in finding.seen.stopped:
        text = f"container {name} does not run: {finding.seen.stopped[name]}"
        return broken("container", "ContainerNotRunning", text)
    if container.has_startup_probe and name not in pod.started:
        text = f"container {name} has a startupProbe that has not succeeded yet"
        return waiting("container", "ContainerNotStarted", text)
    return Link("container", Standing.OK, f"{name} runs")


def port_name_of(probe: Probe) -> str:
    """The named container port of a probe, or empty."""
    action = probe.http_get or probe.tcp_socket
    return action.port if action is not None and isinstance(action.port, str) else ""


def port_link(finding: Finding) -> Link:
    name = port_name_of(finding.probe.probe)
    container = finding.seen.pod.container(finding.probe.container_name)
    if not name or container is None:
        return Link("port", Standing.OK, "")
    number = container.port_number(name)
    if number is None:
        ports = [port for port, _ in container.ports]
        text = (
            f"container {container.name} has no port named {name}{alike(name, ports)}; "
            f"it has {', '.join(ports) or 'none with a name'}"
        )
        return broken("port", "PortNameUnknown", text)
    return Link("port", Standing.OK, f"{name} is {number}")


def node_pod_probe_link(finding: Finding) -> Link:
    link, pod, snapshot = "NodePodProbe", finding.seen.pod, finding.snapshot
    if finding.left_out is not None:
        return broken(link, finding.left_out.reason, finding.left_out.why, finding.left_out.remedy)
    if snapshot.reports is None:
        return Link(link, Standing.OK, "not known: you may not list nodepodprobes")
    wanted = next(
        each
        for each in probes_of_marker(finding.marker, pod.containers, pod.started)
        if each.name == finding.name
    )
    entry = snapshot.entry_of(pod)
    current = next(
        (each for each in (entry.probes if entry else None) or () if each.name == finding.name),
        None,
    )
    if entry is not None and current == wanted and entry.ip == pod.ip:
        return Link(link, Standing.OK, f"{pod.node} asks for it")
    if snapshot.settling(finding.source.metadata.creation_timestamp):
        return waiting(link, "MarkerNew", "the marker is seconds old; the manager is at it")
    no_room = _no_room_message(finding) if current is None else ""
    if no_room:
        return broken(link, REASON_NO_ROOM, f"the manager says: {no_room}")
    if pod.node not in snapshot.reports:
        what = f"there is no NodePodProbe {pod.node}"
        reason = "EntryMissing"
    elif current is None:
        what = f"NodePodProbe {pod.node} does not ask for {finding.name} of this pod"
        reason = "EntryMissing"
    else:
        what = f"NodePodProbe {pod.node} still asks for an earlier version"
        reason = "EntryBehind"
    return broken(
        link, reason, what + _why_behind(finding), manager_remedy(snapshot.manager_trouble)
    )


def _no_room_message(finding: Finding) -> str:
    """The marker's condition about pods that do not fit into this node's NodePodProbe, or empty."""
    for condition in (finding.source.status and finding.source.status.conditions) or ():
        message = condition.message or ""
        if condition.reason == REASON_NO_ROOM and f" {finding.seen.pod.node} (" in message:
            return message
    return ""


def _why_behind(finding: Finding) -> str:
    """Why the manager has not applied the marker, from the marker's status; or empty."""
    source = finding.source
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
