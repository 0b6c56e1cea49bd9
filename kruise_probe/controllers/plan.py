"""Computes the NodePodProbe.spec of one node from its pods, the markers that match them, and the current spec.

The current spec matters in two cases only. Entries of a marker being deleted stay until no pod of the node carries
its marks: marks are removed first, then the entry. Entries of namespaces that this manager does not manage stay.

Source: Kruise pkg/controller/podprobemarker (updateNodePodProbes, convert*ProbeCheckPort).
Differs: the whole spec is computed instead of edited, so manual edits are reverted; the pod IP is updated; port
names of sidecars are resolved; a container with a startup probe is added once it has started; a port name that
cannot be resolved stays in the spec, and the daemon reports it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import msgspec

from kruise_probe.api.caches import Cache, decoded_bytes, sizes_of
from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.names import ProbeName
from kruise_probe.api.pods import Container, Pod, containers_bytes
from kruise_probe.api.v1alpha1 import ContainerProbe, PodProbe
from kruise_probe.controllers.claims import claims_of, has_stale_mark
from kruise_probe.controllers.compiled import CompiledMarker
from kruise_probe.controllers.limits import entry_too_large, may_have_entry, select

Matches = Callable[[Pod], tuple[CompiledMarker, ...]]
"""The markers whose selectors match a pod, including those being deleted."""


def plan(
    pods: Iterable[Pod],
    matches: Matches,
    current: Sequence[PodProbe],
    *,
    deleting: Mapping[NamespacedName, CompiledMarker],
    namespace: str = "",
) -> tuple[PodProbe, ...]:
    """The entries that the node's NodePodProbe should hold, ordered by namespace and name.

    `pods` are all pods of the node. `deleting` holds the markers being deleted. A non-empty `namespace` is the only one managed: entries of others in `current` stay.
    """
    pods = list(pods)
    remaining = _probes_of_deleted_markers(pods, matches, current, deleting) if deleting else {}
    entries: list[PodProbe] = []
    for pod in pods:
        if may_have_entry(pod):
            probes = probes_of_pod(pod, matches(pod))
            if pod.active:
                probes += remaining.get(pod.uid, ())
            if probes:
                entries.append(PodProbe(pod.name, pod.namespace, pod.uid, pod.ip, probes))
    if namespace:
        entries += [each for each in current if each.namespace != namespace]
    entries.sort(key=lambda entry: (entry.namespace, entry.name, entry.uid))
    return tuple(entries)


def probes_of_pod(pod: Pod, markers: tuple[CompiledMarker, ...]) -> tuple[ContainerProbe, ...]:
    """The probes of a pod that can be probed, ordered by marker and by position in the marker's list."""
    if pod.paused:
        return ()
    probes: tuple[ContainerProbe, ...] = ()
    for marker in select(markers).considered:
        if not marker.paused:
            probes += probes_of_marker(marker, pod.containers, pod.started, pod.deleting)
    return probes


_EntryKey = tuple[int, tuple[Container, ...], frozenset[str], bool]
"""Serial of the marker, containers of the pod, which of them have started, and whether the pod is terminating."""


def _size(key: _EntryKey, probes: tuple[ContainerProbe, ...]) -> int:
    _, containers, started, _ = key
    return (
        containers_bytes(containers)
        + sizes_of(started)
        + decoded_bytes(msgspec.json.encode(probes))
    )


_entries = Cache[_EntryKey, tuple[ContainerProbe, ...]](_size)


def probes_of_marker(
    marker: CompiledMarker,
    containers: tuple[Container, ...],
    started: frozenset[str],
    is_terminating: bool = False,
) -> tuple[ContainerProbe, ...]:
    """The probes of `marker` for a pod with these containers: the same tuple for every pod of one template.

    Skips a probe if its container is missing, or is a plain init or an ephemeral container. Returns nothing if the
    entry exceeds its limit. The marker's status reports both.
    """
    key = (marker.serial, containers, started, is_terminating)
    return _entries.find(key, partial(_entry_of, marker))


def _entry_of(marker: CompiledMarker, key: _EntryKey) -> tuple[ContainerProbe, ...]:
    _, containers, started, is_terminating = key
    by_name = {each.name: each for each in containers}
    if entry_too_large(marker, by_name):
        return ()
    probes: list[ContainerProbe] = []
    for each in marker.probes:
        container = by_name.get(each.container)
        if container is None or (is_terminating and not each.runs_while_terminating):
            continue
        if container.has_startup_probe and container.name not in started:
            continue
        probes.append(each.on(container))
    return tuple(probes)


def _probes_of_deleted_markers(
    pods: Sequence[Pod],
    matches: Matches,
    current: Sequence[PodProbe],
    deleting: Mapping[NamespacedName, CompiledMarker],
) -> dict[str, tuple[ContainerProbe, ...]]:
    """By pod uid: the current probes of markers being deleted whose marks are still on pods of this node."""
    unfinished = {
        marker.key
        for marker in deleting.values()
        if any(
            pod.namespace == marker.key.namespace
            and has_stale_mark(pod, marker, claims_of(matches(pod)))
            for pod in pods
        )
    }
    return {
        entry.uid: tuple(
            probe
            for probe in entry.probes
            if NamespacedName(entry.namespace, ProbeName.parse(probe.name).marker) in unfinished
        )
        for entry in current
    }
