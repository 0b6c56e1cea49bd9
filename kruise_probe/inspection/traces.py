"""The links of one probe of one pod, from the marker to the marks, and the readiness gates of a pod. Pure.

Links are in the order in which a result comes about. The first link that is not OK ends the trace, because later links
depend on it. The manager's own functions compute the desired state of each link.
"""

from collections.abc import Callable, Mapping
from itertools import takewhile
from typing import Final, NamedTuple

from kruise_probe.api.pods import Mark, Pod
from kruise_probe.api.problems import did_you_mean
from kruise_probe.controllers.claims import claims_of, conflicts_of
from kruise_probe.controllers.compiled import CompiledMarker
from kruise_probe.controllers.limits import left_out_of, reported_without_room
from kruise_probe.controllers.marking import states_of_conditions
from kruise_probe.controllers.support import unsupported_on, unsupported_on_virtual_nodes
from kruise_probe.hints.selectors import why_not
from kruise_probe.inspection import result_links, spec_links
from kruise_probe.inspection.link import Found, Link, LinkState, ProbeContext, link_of
from kruise_probe.inspection.seen_pods import SeenPod
from kruise_probe.inspection.snapshot import Snapshot


class ProbeTrace(NamedTuple):
    """One probe of one pod, and its links up to the first that is not OK."""

    context: ProbeContext
    links: tuple[Link, ...]

    @property
    def end(self) -> Link | None:
        """The link that is not OK, or None."""
        last = self.links[-1]
        if last.state is LinkState.OK:
            return None
        return last


def traces_of(
    snapshot: Snapshot,
    pod: SeenPod,
    marker: CompiledMarker,
) -> list[ProbeTrace]:
    """The traces of all probes of a marker that selects the pod, in the marker's order."""
    traces: list[ProbeTrace] = []
    for context in contexts_of(snapshot, pod, marker):
        links = _links(context)
        trace = ProbeTrace(context, tuple(links))
        traces.append(trace)
    return traces


def contexts_of(
    snapshot: Snapshot,
    pod: SeenPod,
    marker: CompiledMarker,
) -> list[ProbeContext]:
    """What the links of each probe of a marker are computed from, in the marker's order."""
    source = snapshot.sources[marker.key]
    markers = snapshot.matching.markers_of(pod)
    claims = claims_of(markers)
    unclaimed = {claim.name: claim for claim in claims.claims}
    conflicts = conflicts_of(marker, claims)
    of_conditions = states_of_conditions(pod, claims)
    entry = snapshot.node_index.view(pod.node).entries.get(pod.uid)
    virtual = snapshot.is_virtual(pod)
    results = of_conditions
    left_out = None
    unsupported = unsupported_on_virtual_nodes([marker])
    if not virtual:
        view = snapshot.node_index.view(pod.node)
        unsupported = unsupported_on(
            pod,
            [marker],
            view,
            is_altered=False,
        )
        results = view.states_of(pod)
        planned = []
        if entry is not None:
            planned = [probe.name for probe in entry.probes]
        no_room = reported_without_room(pod, markers, planned)
        left_out = left_out_of(pod, markers, no_room).get(marker.key.name)
    contexts = []
    for probe in source.spec.probes:
        name = f"{marker.key.name}#{probe.name}"
        context = ProbeContext(
            snapshot=snapshot,
            pod=pod,
            source=source,
            marker=marker,
            probe=probe,
            claim=unclaimed.pop(name, None),  # the second of two probes with one name has no claim
            conflicts=tuple(conflict for conflict in conflicts if conflict.probe == probe.name),
            virtual=virtual,
            entry=entry,
            result=results.get(name),
            of_condition=of_conditions.get(name),
            left_out=left_out or unsupported.get(name),
        )
        contexts.append(context)
    return contexts


def is_of_another(pod: Pod, mark: Mark) -> bool:
    """Whether another field manager wrote a mark, and we did not: it is from a backup, a template or another client."""
    return mark in pod.owned_by_others and mark not in pod.owned


def _links(context: ProbeContext) -> list[Link]:
    """The links up to the first that is not OK. If that waits for a write and no manager leads, the manager is the end."""
    links: list[Link] = []
    order = _ON_NODES
    if context.virtual:
        order = _ON_VIRTUAL_NODES
    names = context.names
    for name, find in order.items():
        link = link_of(name, find(context), **names)
        links.append(link)
        if link.state is not LinkState.OK:
            break
    manager = spec_links.missing_manager_link(context, links[-1])
    if manager is None:
        return links
    before = takewhile(lambda link: link.name != manager.name, links)
    return [*before, manager]


_ON_NODES: Final[dict[str, Callable[[ProbeContext], Found]]] = {
    "marker": spec_links.marker_link,
    "pod": spec_links.pod_link,
    "container": spec_links.container_link,
    "port": spec_links.port_link,
    "manager": spec_links.manager_link,
    "NodePodProbe": spec_links.node_pod_probe_link,
    "daemon": result_links.daemon_link,
    "result": result_links.result_link,
    "condition": result_links.condition_link,
    "marks": result_links.marks_link,
}
_ON_VIRTUAL_NODES: Final[dict[str, Callable[[ProbeContext], Found]]] = {
    "marker": spec_links.marker_link,
    "pod": spec_links.pod_link,
    "container": spec_links.container_link,
    "provider": spec_links.provider_link,
    "manager": spec_links.manager_link,
    "condition": result_links.condition_link,
    "marks": result_links.marks_link,
}


def readiness_gates_of(snapshot: Snapshot, pod: SeenPod) -> list[Link]:
    """One link for each readiness gate of the pod, sorted by condition type: which probe writes its condition.

    Without a writer the pod never becomes ready. Another component may write a gate that no probe writes, so such a
    gate is only broken if a marker that does not select the pod writes it, or a probe of the pod writes a similar name.
    """
    if not pod.readiness_gates:
        return []
    writers: dict[str, str] = {}
    elsewhere: dict[str, CompiledMarker] = {}
    for marker in snapshot.markers_in(pod.namespace):
        if marker.deleting:
            continue
        selects = marker.selector.matches(pod.labels)
        for probe in marker.probes:
            if not selects:
                elsewhere.setdefault(probe.condition_type, marker)
            elif probe.condition_type:
                writers.setdefault(probe.condition_type, probe.name)
    links: list[Link] = []
    for gate in sorted(pod.readiness_gates):
        found = _gate(pod, gate, writers, elsewhere.get(gate))
        link = link_of("readiness gate", found)
        links.append(link)
    return links


def _gate(
    pod: Pod, gate: str, writers: Mapping[str, str], elsewhere: CompiledMarker | None
) -> Found:
    """What is known of a gate; `elsewhere` is a marker that writes it but does not select the pod."""
    condition = pod.condition(gate)
    status = "missing on the pod"
    if condition is not None:
        status = condition.status
    text = f"{gate} is {status}"
    is_open = status == "True"
    if gate in writers:
        text += f", written by {writers[gate]}"
        if is_open:
            return Found(text)
        return Found(text, "GateClosed")
    if is_open:
        return Found(f"{text}; no probe of this pod writes it")
    if condition is None and elsewhere is not None:
        why = why_not(elsewhere.selector, pod.labels)
        text += f": only PodProbeMarker {elsewhere.key.name} writes it, but does not select the pod: {why}"
        remedy = "correct the labels of the pod, or create another marker, because a selector cannot be changed"
        return Found(text, "GateUnwritten", remedy)
    typo = did_you_mean(gate, writers)
    if condition is None and typo:
        return Found(f"{text}, and no probe writes it.{typo}", "GateUnwritten")
    text += "; no probe of this pod writes it; the pod is not Ready until this gate is True"
    return Found(text, "GateOfOthers")
