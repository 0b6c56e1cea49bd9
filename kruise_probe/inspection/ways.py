"""The way of one probe of one pod, link by link: from the marker to NodePodProbe, to a result, to the marks. Pure.

The links stand in the order in which a result comes about; the first that is not in order ends the way, as what
follows cannot be. The same functions that the manager acts on say what each link should hold.

Source: no counterpart.
Differs: as said.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from kruise_probe.api.v1alpha1 import ContainerProbeState, PodContainerProbe
from kruise_probe.controllers.compiled import CompiledMarker
from kruise_probe.controllers.limits import left_out_of, reported_without_room
from kruise_probe.controllers.pods.claims import Claim, claims_of, conflicts_of
from kruise_probe.controllers.serverless import is_virtual, states_of
from kruise_probe.inspection import answered, asked
from kruise_probe.inspection.link import Case, Link, Standing
from kruise_probe.inspection.snapshot import SeenPod, Snapshot


class Way(NamedTuple):
    """One probe of one pod: the links as far as they go, the newest result as it is known, what it may write."""

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
        """The link that keeps the way from its end, or None."""
        last = self.links[-1]
        return None if last.standing is Standing.OK else last


def ways_of(snapshot: Snapshot, seen: SeenPod, marker: CompiledMarker) -> list[Way]:
    """The ways of all probes of one marker that selects the pod, in the marker's order."""
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
    ways = []
    for probe in source.spec.probes or ():
        name = f"{marker.key.name}#{probe.name}"
        case = Case(
            snapshot,
            seen,
            source,
            marker,
            probe,
            by_name.pop(name, None),  # of several with one name the first counts
            tuple(each for each in conflicts if each.probe == probe.name),
            virtual,
            states.get(name),
            None if virtual else left_out.get(marker.key.name),
        )
        ways.append(Way(marker, probe, tuple(_walk(case)), case.state, case.claim))
    return ways


def _walk(case: Case) -> list[Link]:
    links: list[Link] = []
    for look in _SERVERLESS if case.virtual else _DAEMON:
        links.append(look(case))
        if links[-1].standing is not Standing.OK:
            break
    return links


_DAEMON: Final[tuple[Callable[[Case], Link], ...]] = (
    asked.marker_link, asked.pod_link, asked.container_link, asked.port_link, asked.node_pod_probe_link, answered.daemon_link, answered.result_link, answered.condition_link, answered.marks_link,
)  # fmt: skip
_SERVERLESS: Final[tuple[Callable[[Case], Link], ...]] = (
    asked.marker_link, asked.pod_link, asked.container_link, answered.provider_link, answered.condition_link, answered.marks_link,
)  # fmt: skip
