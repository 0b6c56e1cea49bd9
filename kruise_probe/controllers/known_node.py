"""What the manager knows of a node, and the results of a pod, which follow from it. Pure functions.

Source: no counterpart.
Differs: nothing.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from kruise_probe.api.pods import Pod
from kruise_probe.controllers.budget import NoRoom
from kruise_probe.controllers.claims import claims_of
from kruise_probe.controllers.daemon_leases import Liveness
from kruise_probe.controllers.limits import (
    NOTHING_LEFT_OUT,
    LeftOut,
    is_probed,
    left_out_of,
    reported_without_room,
)
from kruise_probe.controllers.marking import PodResults, States, states_of_conditions
from kruise_probe.controllers.matching import Considered
from kruise_probe.controllers.node_index import NodeView
from kruise_probe.controllers.support import unsupported_on, unsupported_on_virtual_nodes


class KnownNode(NamedTuple):
    """What all pods of a node have in common.

    Attributes:
        exists: the Node does.
        has_provider: its serverless provider reports results. It is virtual, and the feature gate is on.
        view: its NodePodProbe.
        no_room: the probes that do not fit into its NodePodProbe; None until its first plan.
        is_altered: the API server stores other entries than the manager wrote.
        liveness: of its daemon.
        why_stale: why its results are stale, or empty.
        has_two_daemons: two processes renew the Lease of its daemon in turns.
    """

    exists: bool
    is_virtual: bool
    has_provider: bool
    view: NodeView
    no_room: NoRoom | None
    is_altered: bool
    liveness: Liveness
    why_stale: str
    has_two_daemons: bool


def results_of(
    pod: Pod,
    markers: Considered,
    node: KnownNode,
) -> PodResults:
    """The results of `pod`, for which `markers` are considered; those of a finished pod do not count any more."""
    if not node.exists or pod.finished:
        return PodResults(by_provider=node.is_virtual)
    if node.is_virtual:
        return _results_of_provider(pod, markers, node)
    hashed = markers
    if node.is_altered:
        hashed = ()  # the daemon reports hashes of the entries that the API server has changed
    states = node.view.current_states_of(pod, hashed)
    left_out = _left_out_of(pod, markers, node)
    unsupported = unsupported_on(
        pod,
        markers,
        node.view,
        is_altered=node.is_altered,
    )
    if unsupported:
        states = _without(states, unsupported)
        left_out = {**left_out, **unsupported}
    return PodResults(
        states,
        node.why_stale,
        is_doubted=node.liveness is Liveness.DOUBTED,
        left_out=left_out,
    )


def _results_of_provider(
    pod: Pod,
    markers: Considered,
    node: KnownNode,
) -> PodResults:
    """The conditions that a serverless provider wrote, if the feature gate is on."""
    unsupported = unsupported_on_virtual_nodes(markers)
    if not node.has_provider:
        return PodResults(by_provider=True, left_out=unsupported)
    claims = claims_of(markers)
    states = _without(states_of_conditions(pod, claims), unsupported)
    return PodResults(states, by_provider=True, left_out=unsupported)


def _left_out_of(
    pod: Pod,
    markers: Considered,
    node: KnownNode,
) -> Mapping[str, LeftOut]:
    no_room = _without_room(pod, markers, node)
    left_out = left_out_of(pod, markers, no_room)
    if left_out and is_probed(pod):
        return left_out
    return NOTHING_LEFT_OUT


def _without_room(
    pod: Pod,
    markers: Considered,
    node: KnownNode,
) -> Collection[str]:
    """The markers whose probes do not fit into the node's NodePodProbe.

    Until the first plan of the node after a restart, the pod's conditions provide it.
    """
    if node.no_room is not None:
        return node.no_room.get(pod.uid, ())
    entry = node.view.entries.get(pod.uid)
    if entry is None:
        return reported_without_room(pod, markers, ())
    running = [probe.name for probe in entry.probes]
    return reported_without_room(pod, markers, running)


def _without(states: States, unsupported: Mapping[str, LeftOut]) -> States:
    """The states but those of probes whose results do not count."""
    return {name: state for name, state in states.items() if name not in unsupported}
