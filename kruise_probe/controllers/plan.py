"""What one pod adds to the NodePodProbe.spec of its node. Pure functions.

Pods of one template share their probes. What they add is computed once for each marker, and kept in a bounded cache with its
size. So the spec of a node is put together without encoding or resolving anything again.

The current spec matters in two cases only. Probes of a marker being deleted stay until no pod of the node carries
its marks: marks are removed first, then the entry. Entries of namespaces that this manager does not manage stay.

Source: Kruise pkg/controller/podprobemarker (updateNodePodProbes, convert*ProbeCheckPort).
Differs: the whole spec is computed instead of edited, so manual edits are reverted; the pod IP is updated; port
names of sidecars are resolved; a container with a startup probe is added once it has started; a port name that
cannot be resolved stays in the spec, and the daemon reports it.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from kruise_probe.api.caches import Cache, decoded_bytes, sizes_of
from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.node_pod_probe import PodProbe
from kruise_probe.api.pod_wire import containers_bytes
from kruise_probe.api.pods import Container, Pod
from kruise_probe.api.v1alpha1 import ContainerProbe
from kruise_probe.controllers.budget import (
    NO_PROBES,
    Group,
    PodPart,
    PodProbes,
    group_of,
    in_order,
    pod_part,
    pod_probes,
)
from kruise_probe.controllers.claims import StaleMarks, claims_of
from kruise_probe.controllers.compiled import CompiledMarker, key_of_marker
from kruise_probe.controllers.limits import (
    entry_too_large,
    is_probed,
    left_out_of,
    may_have_entry,
    select,
)
from kruise_probe.controllers.matching import Considered
from kruise_probe.workqueue.slices import PODS_PER_STEP, Steps

ConsideredOf = Callable[[Pod], Considered]
"""Returns the markers that are considered for a pod; see `Matching.considered_of`."""


class Plan(NamedTuple):
    """What the pods of a node need.

    Attributes:
        entries: all of them, also if they do not fit into one object; ordered by namespace and name.
        others: those of other managers among them.
        left_out: number of probes that the limits of a pod leave out, by reason.
    """

    entries: tuple[PodProbe, ...]
    parts: Sequence[PodPart]
    others: Sequence[PodProbe]
    left_out: Mapping[str, int]


class _Template(NamedTuple):
    """What pods with the same markers and containers have in common."""

    probes: PodProbes
    left_out: Mapping[str, int]


def plan_steps(
    pods: Iterable[Pod],
    considered_of: ConsideredOf,
    current: Sequence[PodProbe],
    *,
    ending: Sequence[CompiledMarker] = (),
    namespace: str = "",
) -> Steps[Plan]:
    """What the node's NodePodProbe should hold.

    `pods` are all pods of the node. `ending` are the markers being deleted that have probes in `current`. A non-empty
    `namespace` is the only one managed: entries of others in `current` stay.
    """
    of_pods = [(pod, considered_of(pod)) for pod in pods]
    fixed: Mapping[str, tuple[ContainerProbe, ...]] = {}
    if ending:
        unfinished = yield from _unfinished(of_pods, ending)
        fixed = _probes_of(unfinished, current)
    templates: dict[object, _Template] = {}
    parts = []
    left_out = Counter[str]()
    for number, (pod, considered) in enumerate(of_pods, start=1):
        if (considered or fixed) and may_have_entry(pod):
            template = _template_of(pod, considered, templates)
            if is_probed(pod):
                left_out.update(template.left_out)
            stays: tuple[ContainerProbe, ...] = ()
            if pod.active:
                stays = fixed.get(pod.uid, ())
            probes = template.probes.probes + stays
            if probes:
                entry = PodProbe(pod.name, pod.namespace, pod.uid, pod.ip, probes)
                part = pod_part(entry, template.probes, stays)
                parts.append(part)
        if number % PODS_PER_STEP == 0:
            yield
    others = [entry for entry in current if namespace not in ("", entry.namespace)]
    entries = [part.entry for part in parts]
    entries += others
    in_spec = in_order(entries)
    return Plan(in_spec, parts, others, left_out)


def _template_of(
    pod: Pod,
    considered: Considered,
    known: dict[object, _Template],
) -> _Template:
    key = (considered, pod.containers, pod.started, pod.paused, pod.deleting)
    template = known.get(key)
    if template is None:
        probes = _probes_of_pod(pod, considered)
        left_out = _left_out(pod, considered)
        template = known[key] = _Template(probes, left_out)
    return template


def _probes_of_pod(pod: Pod, considered: Considered) -> PodProbes:
    """The probes of a pod that can be probed, ordered by marker and by position in the marker's list."""
    if pod.paused:
        return NO_PROBES
    groups = []
    for marker in select(considered).considered:
        if marker.paused:
            continue
        group = probes_of_marker(marker, pod.containers, pod.started, pod.deleting)
        if group.probes:
            groups.append(group)
    return pod_probes(groups)


def _left_out(pod: Pod, considered: Considered) -> Mapping[str, int]:
    """Number of probes that the limits of a pod leave out, by reason. Markers that are not considered do not count."""
    counts = Counter[str]()
    limits = left_out_of(pod, considered, ())
    for marker in considered:
        limit = limits.get(marker.key.name)
        if limit is not None:
            counts[limit.reason] += len(marker.probes)
    return counts


_EntryKey = tuple[int, tuple[Container, ...], frozenset[str], bool]
"""Serial of the marker, containers of the pod, which of them have started, and whether the pod is terminating."""


def _size(key: _EntryKey, group: Group) -> int:
    _, containers, started, _ = key
    encoded = msgspec.json.encode(group.probes)
    of_pod = containers_bytes(containers) + sizes_of(started)
    return decoded_bytes(encoded) + of_pod


_entries = Cache[_EntryKey, Group](_size)


def probes_of_marker(
    marker: CompiledMarker,
    containers: tuple[Container, ...],
    started: frozenset[str],
    is_terminating: bool = False,
) -> Group:
    """The probes of `marker` for a pod with these containers: the same object for every pod of one template.

    Skips a probe if its container is missing, or is a plain init or an ephemeral container. There are none if the
    entry exceeds its limit. The marker's status reports both.
    """
    key = (marker.serial, containers, started, is_terminating)
    return _entries.find(key, partial(_entry_of, marker))


def _entry_of(marker: CompiledMarker, key: _EntryKey) -> Group:
    _, containers, started, is_terminating = key
    by_name = {container.name: container for container in containers}
    is_too_large = entry_too_large(marker, by_name)
    probes: list[ContainerProbe] = []
    for probe in marker.probes:
        container = by_name.get(probe.container)
        if container is None or is_too_large or probe.is_pruned:
            continue
        if is_terminating and not probe.runs_while_terminating:
            continue
        if container.has_startup_probe and container.name not in started:
            continue
        probes.append(probe.on(container))
    return group_of(marker.key.name, marker.order, tuple(probes))


def _unfinished(
    of_pods: Sequence[tuple[Pod, Considered]],
    ending: Sequence[CompiledMarker],
) -> Steps[set[NamespacedName]]:
    """The markers being deleted whose marks are still on pods of this node."""
    unfinished = set()
    for number, (pod, considered) in enumerate(of_pods, start=1):
        claims = claims_of(considered)
        stale = StaleMarks(pod, claims.on(pod))
        for marker in ending:
            if marker.key.namespace != pod.namespace:
                continue
            if stale.has_any_of(marker):
                unfinished.add(marker.key)
        if number % PODS_PER_STEP == 0:
            yield
    return unfinished


def _probes_of(
    markers: set[NamespacedName], current: Sequence[PodProbe]
) -> Mapping[str, tuple[ContainerProbe, ...]]:
    """By pod uid, the current probes of these markers."""
    found: dict[str, list[ContainerProbe]] = defaultdict(list)
    for entry in current:
        for probe in entry.probes:
            marker = key_of_marker(entry.namespace, probe.name)
            if marker in markers:
                found[entry.uid].append(probe)
    return {uid: tuple(probes) for uid, probes in found.items()}
