"""Which probes have fields that their prober or a CRD does not know: their results would be wrong, so they never count.

`v1alpha1.CRITERIA` are these fields. A daemon that knows them says so in its status, and reports the hash of the whole probe.

Source: no counterpart.
"""

from collections.abc import Iterable, Mapping
from operator import attrgetter

from kruise_probe.api.node_pod_probe import ContainerProbeState
from kruise_probe.api.pods import Pod
from kruise_probe.api.v1alpha1 import CRITERIA, ProbeState
from kruise_probe.controllers.compiled import CompiledMarker, CompiledProbe
from kruise_probe.controllers.limits import FIELD_NOT_SUPPORTED, FIELD_PRUNED, LeftOut
from kruise_probe.controllers.node_index import NodeView

_criteria_of = attrgetter(*CRITERIA.values())


def unsupported_on(
    pod: Pod,
    markers: Iterable[CompiledMarker],
    view: NodeView,
    *,
    is_altered: bool,
) -> Mapping[str, LeftOut]:
    """Why probes of a pod have no result that counts, by their names.

    `view` is that of the pod's node. `is_altered`: the API server has stored other entries than the manager sent.
    """
    found = {}
    for marker in markers:
        for probe in marker.with_criteria:
            if probe.is_pruned:
                found[probe.name] = FIELD_PRUNED
                continue
            state = view.states_of(pod).get(probe.name)
            if state is None or state.state == ProbeState.UNKNOWN:
                continue  # Unknown is no result of a handler.
            if not _is_supported(
                probe,
                pod,
                state,
                view,
                is_altered=is_altered,
            ):
                found[probe.name] = FIELD_NOT_SUPPORTED
    return found


def unsupported_on_virtual_nodes(markers: Iterable[CompiledMarker]) -> Mapping[str, LeftOut]:
    """The same on virtual nodes, whose provider gets no such probe."""
    found = {}
    for marker in markers:
        for probe in marker.with_criteria:
            found[probe.name] = FIELD_NOT_SUPPORTED
    return found


def _is_supported(
    probe: CompiledProbe,
    pod: Pod,
    state: ContainerProbeState,
    view: NodeView,
    *,
    is_altered: bool,
) -> bool:
    """Whether the daemon that reported `state` knows the fields; the result may still be that of an earlier handler."""
    wanted = probe.container_probe
    if state.probe_hash == probe.hash_on(pod):
        return True
    if not state.probe_hash:
        return False
    if not view.knows.issuperset(wanted.criteria):
        return False
    if not is_altered:
        return True
    stored = view.entry_of(pod, probe.name)
    if stored is None:
        return False
    if stored.hash != state.probe_hash:
        return False
    return bool(_criteria_of(stored) == _criteria_of(wanted))
