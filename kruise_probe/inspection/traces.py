"""The trace of one probe of one pod, link by link: from the marker to NodePodProbe, the result and the marks. Pure.

Links follow the order in which a result is made. The first link that is not OK ends the trace, because later links
depend on it. The manager's own functions compute the desired state of each link.

Source: no counterpart.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from kruise_probe.api.v1alpha1 import ContainerProbeState, PodContainerProbe
from kruise_probe.controllers.compiled import CompiledMarker
from kruise_probe.controllers.limits import left_out_of, reported_without_room
from kruise_probe.controllers.pods.claims import Claim, claims_of, conflicts_of
from kruise_probe.controllers.serverless import is_virtual, states_of
from kruise_probe.inspection import result, spec
from kruise_probe.inspection.link import Finding, Link, Standing
from kruise_probe.inspection.snapshot import SeenPod, Snapshot


class Trace(NamedTuple):
    """One probe of one pod: its links up to the first that is not OK, its newest result, and what it may write."""

    marker: CompiledMarker
    probe: PodContainerProbe
    links: tuple[Link, ...]
    state: ContainerProbeState | None
    claim: Claim | None

    @property
    def name(self) -> str:
        return f"{self.marker.key.name}#{self.probe.name}"

    @property
    def end(self) -> Link | None:
        """The link that is not OK, or None."""
        last = self.links[-1]
        return None if last.standing is Standing.OK else last


def traces_of(snapshot: Snapshot, seen: SeenPod, marker: CompiledMarker) -> list[Trace]:
    """The traces of all probes of a marker that selects the pod, in the marker's order."""
    pod = seen.pod
    markers = snapshot.markers_of(pod)
    claims = claims_of(markers)
    virtual = is_virtual((snapshot.nodes or {}).get(pod.node))
    states = states_of(pod, claims) if virtual else snapshot.states_of(pod)
    entry = snapshot.entry_of(pod)
    running = [each.name for each in (entry.probes if entry else None) or ()]
    left_out = left_out_of(pod, markers, reported_without_room(pod, markers, running))
    conflicts = conflicts_of(marker, claims)
    by_name = {claim.name: claim for claim in claims.claims} if marker.live else {}
    source = snapshot.sources[marker.key]
    traces = []
    for probe in source.spec.probes or ():
        name = f"{marker.key.name}#{probe.name}"
        finding = Finding(
            snapshot,
            seen,
            source,
            marker,
            probe,
            by_name.pop(name, None),  # of probes with the same name, the first gets the claim
            tuple(each for each in conflicts if each.probe == probe.name),
            virtual,
            states.get(name),
            None if virtual else left_out.get(marker.key.name),
        )
        traces.append(Trace(marker, probe, tuple(_walk(finding)), finding.state, finding.claim))
    return traces


def _walk(finding: Finding) -> list[Link]:
    links: list[Link] = []
    for look in _SERVERLESS if finding.virtual else _DAEMON:
        links.append(look(finding))
        if links[-1].standing is not Standing.OK:
            break
    return links


_DAEMON: Final[tuple[Callable[[Finding], Link], ...]] = (
    spec.marker_link, spec.pod_link, spec.container_link, spec.port_link, spec.node_pod_probe_link, result.daemon_link, result.result_link, result.condition_link, result.marks_link,
)  # fmt: skip
_SERVERLESS: Final[tuple[Callable[[Finding], Link], ...]] = (
    spec.marker_link, spec.pod_link, spec.container_link, result.provider_link, result.condition_link, result.marks_link,
)  # fmt: skip
