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
from kruise_probe.controllers.limits import is_virtual, left_out_of, reported_without_room
from kruise_probe.controllers.marking import states_of_conditions
from kruise_probe.hints.selectors import why_not
from kruise_probe.inspection import result_links, spec_links
from kruise_probe.inspection.link import Link, LinkState, ProbeContext, broken, ok, waiting
from kruise_probe.inspection.snapshot import SeenPod, Snapshot


class ProbeTrace(NamedTuple):
    """One probe of one pod, and its links up to the first that is not OK."""

    context: ProbeContext
    links: tuple[Link, ...]

    @property
    def end(self) -> Link | None:
        """The link that is not OK, or None."""
        last = self.links[-1]
        return None if last.state is LinkState.OK else last


def traces_of(snapshot: Snapshot, pod: SeenPod, marker: CompiledMarker) -> list[ProbeTrace]:
    """The traces of all probes of a marker that selects the pod, in the marker's order."""
    return [
        ProbeTrace(context, tuple(_links(context)))
        for context in contexts_of(snapshot, pod, marker)
    ]


def contexts_of(snapshot: Snapshot, pod: SeenPod, marker: CompiledMarker) -> list[ProbeContext]:
    """What the links of each probe of a marker are computed from, in the marker's order."""
    source = snapshot.sources[marker.key]
    markers = snapshot.matching.markers_of(pod)
    claims = claims_of(markers)
    virtual = is_virtual((snapshot.nodes or {}).get(pod.node))
    of_conditions = states_of_conditions(pod, claims)
    results = of_conditions if virtual else snapshot.node_index.states_of(pod, ())
    entry = snapshot.node_index.view(pod.node).entries.get(pod.uid)
    planned = [probe.name for probe in (entry and entry.probes) or ()]
    left_out = left_out_of(pod, markers, reported_without_room(pod, markers, planned))
    conflicts = conflicts_of(marker, claims)
    by_name = {claim.name: claim for claim in claims.claims} if not marker.deleting else {}
    return [
        ProbeContext(
            snapshot=snapshot,
            pod=pod,
            source=source,
            marker=marker,
            probe=probe,
            claim=by_name.pop(name, None),  # of probes with the same name, the first gets the claim
            conflicts=tuple(conflict for conflict in conflicts if conflict.probe == probe.name),
            virtual=virtual,
            entry=entry,
            result=results.get(name),
            of_condition=of_conditions.get(name),
            left_out=None if virtual else left_out.get(marker.key.name),
        )
        for probe in source.spec.probes
        for name in (f"{marker.key.name}#{probe.name}",)
    ]


def is_of_another(pod: Pod, mark: Mark) -> bool:
    """Whether another field manager wrote a mark, and we did not: it is from a backup, a template or another client."""
    return mark in pod.owned_by_others and mark not in pod.owned


def _links(context: ProbeContext) -> list[Link]:
    """The links up to the first that is not OK. If that waits for a write and no manager leads, the manager is the end."""
    links: list[Link] = []
    for link_of in _ON_VIRTUAL_NODES if context.virtual else _ON_NODES:
        links.append(link_of(context))
        if links[-1].state is not LinkState.OK:
            break
    manager = spec_links.missing_manager_link(context, links[-1])
    if manager is None:
        return links
    return [*takewhile(lambda link: link.name != manager.name, links), manager]


_ON_NODES: Final[tuple[Callable[[ProbeContext], Link], ...]] = (
    spec_links.marker_link,
    spec_links.pod_link,
    spec_links.container_link,
    spec_links.port_link,
    spec_links.manager_link,
    spec_links.node_pod_probe_link,
    result_links.daemon_link,
    result_links.result_link,
    result_links.condition_link,
    result_links.marks_link,
)
_ON_VIRTUAL_NODES: Final[tuple[Callable[[ProbeContext], Link], ...]] = (
    spec_links.marker_link,
    spec_links.pod_link,
    spec_links.container_link,
    spec_links.provider_link,
    spec_links.manager_link,
    result_links.condition_link,
    result_links.marks_link,
)


def readiness_gates_of(snapshot: Snapshot, pod: SeenPod) -> list[Link]:
    """One link for each readiness gate of the pod, sorted by condition type: which probe writes its condition.

    Without a writer the pod never becomes ready. Another component may write a gate that no probe writes, so such a
    gate is only broken if a marker that does not select the pod writes it, or a probe of the pod writes a similar name.
    """
    writers: dict[str, str] = {}
    elsewhere: dict[str, CompiledMarker] = {}
    if not pod.readiness_gates:
        return []
    markers = [each for each in snapshot.compiled.values() if each.key.namespace == pod.namespace]
    for marker in sorted(markers, key=lambda each: each.order):
        for probe in marker.probes if not marker.deleting else ():
            if not marker.selector.matches(pod.labels):
                elsewhere.setdefault(probe.condition_type, marker)
            elif probe.condition_type:
                writers.setdefault(probe.condition_type, f"{marker.key.name}#{probe.probe}")
    return [_readiness_gate(pod, each, writers, elsewhere) for each in sorted(pod.readiness_gates)]


def _readiness_gate(
    pod: Pod, gate: str, writers: Mapping[str, str], elsewhere: Mapping[str, CompiledMarker]
) -> Link:
    name = "readiness gate"
    condition = pod.condition(gate)
    status = f"is {condition.status}" if condition else "is missing on the pod"
    is_open = condition is not None and condition.status == "True"
    if gate in writers:
        text = f"{gate} {status}, written by {writers[gate]}"
        return ok(name, text) if is_open else waiting(name, "GateClosed", text)
    text = f"{gate} {status}; no probe of this pod writes it"
    if is_open:
        return ok(name, text)
    if condition is None and (marker := elsewhere.get(gate)):
        why = why_not(marker.selector, pod.labels)
        text = f"{gate} {status}: only PodProbeMarker {marker.key.name} writes it, but does not select the pod: {why}"
        return broken(
            name,
            "GateUnwritten",
            text,
            "correct the labels of the pod, or create another marker, because a selector cannot be changed",
        )
    if condition is None and (hint := did_you_mean(gate, writers)):
        return broken(name, "GateUnwritten", f"{gate} {status}, and no probe writes it.{hint}")
    return waiting(name, "GateOfOthers", f"{text}; the pod is not Ready until this gate is True")
