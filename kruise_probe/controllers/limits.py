"""Which pods are probed, limits on their markers and probes, and which probes a limit leaves out. Pure functions.

A probe that is left out is not in NodePodProbe.spec. Its condition on the pod becomes Unknown with the limit's reason.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from kruise_probe.api.labels import MAX_ANNOTATION_BYTES, annotation_bytes
from kruise_probe.api.names import (
    REASON_ANNOTATIONS_FULL,
    REASON_ENTRY_TOO_LARGE,
    REASON_FIELD_NOT_SUPPORTED,
    REASON_FIELD_PRUNED,
    REASON_NO_ROOM,
    REASON_TOO_MANY_KEYS,
    REASON_TOO_MANY_MARKERS,
    REASON_TOO_MANY_PROBES,
    SERVERLESS_MARKERS_ANNOTATION,
)
from kruise_probe.api.pods import Pod
from kruise_probe.api.v1alpha1 import KEYS_PER_POD, MARKERS_PER_POD, MAX_MARKER_KEYS, PROBES_PER_POD
from kruise_probe.controllers.compiled import ENTRY_BYTES, CompiledMarker

REPORTED_PROBES: Final = 256
"""Maximum number of left-out probes whose conditions are written. It bounds the size of the pod's status."""
MARKERS_REPORTED: Final = MARKERS_PER_POD + REPORTED_PROBES
"""No younger marker of a pod has an effect on it."""


class LeftOut(NamedTuple):
    """Why the probes of a marker are left out for a pod, and how to fix it."""

    reason: str
    why: str
    remedy: str

    @property
    def remedied(self) -> str:
        """Why, and how to fix it."""
        first = self.remedy[0].upper()
        rest = self.remedy[1:]
        return f"{self.why}. {first}{rest}."

    @property
    def message(self) -> str:
        """The message of the pod's conditions."""
        return f"Not probed: {self.remedied}"


TOO_MANY_MARKERS: Final = LeftOut(
    REASON_TOO_MANY_MARKERS,
    f"{MARKERS_PER_POD} older PodProbeMarkers select this pod, which is the limit",
    "delete some of them, or merge their probes into fewer markers",
)
TOO_MANY_PROBES: Final = LeftOut(
    REASON_TOO_MANY_PROBES,
    f"with the probes of this PodProbeMarker and of older ones this pod has more than {PROBES_PER_POD} probes, which is the limit",
    "remove probes, or delete some of the markers",
)
TOO_MANY_KEYS: Final = LeftOut(
    REASON_TOO_MANY_KEYS,
    f"the policies of this PodProbeMarker mention more than {MAX_MARKER_KEYS} labels and annotations, or more than "
    f"{KEYS_PER_POD:,} together with those of the older PodProbeMarkers of this pod",
    "remove some, or move them to a marker that selects fewer pods",
)
ENTRY_TOO_LARGE: Final = LeftOut(
    REASON_ENTRY_TOO_LARGE,
    f"the probes of this PodProbeMarker exceed {ENTRY_BYTES // 1024} KiB for one pod",
    "shorten their commands, or move probes to another marker",
)
NO_ROOM: Final = LeftOut(
    REASON_NO_ROOM,
    "the NodePodProbe of this pod's node is full (1 MiB), and this namespace or pod has used its share of it",
    "use fewer probes or shorter commands for the pods of that node",
)
ANNOTATIONS_FULL: Final = LeftOut(
    REASON_ANNOTATIONS_FULL,
    f"with the probes of this PodProbeMarker the annotations of a pod of a virtual node exceed {MAX_ANNOTATION_BYTES // 1024} KiB",
    "use fewer probes or shorter commands, and create these pods again",
)
FIELD_PRUNED: Final = LeftOut(
    REASON_FIELD_PRUNED,
    "the CRD of NodePodProbes drops extract or successWhen of this probe, so its results would be wrong",
    "install the CRDs of this version, then restart the manager",
)
FIELD_NOT_SUPPORTED: Final = LeftOut(
    REASON_FIELD_NOT_SUPPORTED,
    "the prober of this pod's node does not know extract or successWhen of this probe, so its results would be wrong",
    "run the daemon of this version on the node, or remove these fields; virtual nodes cannot have them",
)
UNSUPPORTED: Final = (FIELD_PRUNED, FIELD_NOT_SUPPORTED)
"""Of single probes. Others of the same marker have results."""
LIMITS_OF_SETS: Final = (TOO_MANY_MARKERS, TOO_MANY_PROBES, TOO_MANY_KEYS)
"""Limits on the markers of one pod together."""
LIMITS: Final = (*LIMITS_OF_SETS, ENTRY_TOO_LARGE, ANNOTATIONS_FULL, NO_ROOM)
"""The order in which a marker's status reports them."""

NOTHING_LEFT_OUT: Final[Mapping[str, LeftOut]] = {}


def is_probed(pod: Pod) -> bool:
    """Whether a pod can be probed: it is active, scheduled, initialised and not a static pod."""
    if pod.deleting:
        return False
    return may_have_entry(pod)


def may_have_entry(pod: Pod) -> bool:
    """Whether a pod may be in a NodePodProbe: as `is_probed`, but it may be terminating (`whenTerminating: Probe`)."""
    if pod.finished or pod.mirror:
        return False
    if not pod.node:
        return False
    return pod.initialized


def has_no_place_in_annotations(pod: Pod, marker: CompiledMarker) -> bool:
    """Whether the webhook left out the marker, because the pod's annotations would have exceeded their limit."""
    listed = pod.annotations.get(SERVERLESS_MARKERS_ANNOTATION, "")
    if marker.key.name in listed.split(","):
        return False
    types = [probe.condition_type for probe in marker.probes]
    if not any(types):
        return False
    size = annotation_bytes(pod.annotations) + marker.entry_bytes
    return size >= MAX_ANNOTATION_BYTES


class Selection(NamedTuple):
    """Which markers of a pod are considered, in order, and why the others are not, in order."""

    considered: tuple[CompiledMarker, ...]
    left_out: Mapping[CompiledMarker, LeftOut]

    @property
    def reported(self) -> list[CompiledMarker]:
        """The markers left out whose conditions say so."""
        reported: list[CompiledMarker] = []
        probes = 0
        for marker in self.left_out:
            probes += max(len(marker.probes), 1)
            if probes > REPORTED_PROBES:
                return reported
            reported.append(marker)
        return reported


def select(markers: tuple[CompiledMarker, ...]) -> Selection:
    """Select among the markers of a pod: a live marker that does not fit beside the older ones is left out whole."""
    considered = []
    left_out = {}
    probes = 0
    keys = 0
    in_order = by_precedence(markers)
    for place, marker in enumerate(in_order):
        if place >= MARKERS_PER_POD:
            left_out[marker] = TOO_MANY_MARKERS
        elif probes + len(marker.probes) > PROBES_PER_POD:
            left_out[marker] = TOO_MANY_PROBES
        elif marker.keys > MAX_MARKER_KEYS or keys + marker.keys > KEYS_PER_POD:
            left_out[marker] = TOO_MANY_KEYS
        else:
            considered.append(marker)
            probes += len(marker.probes)
            keys += marker.keys
    return Selection(tuple(considered), left_out)


def first_markers(live: Sequence[CompiledMarker]) -> tuple[CompiledMarker, ...]:
    """Of the live markers of a pod, the oldest first: all that may be considered, and those after them whose conditions report it.

    What is selected among these is what is selected among all.
    """
    if len(live) <= MARKERS_PER_POD:
        return tuple(live)
    first = live[:MARKERS_PER_POD]
    oldest = live[:MARKERS_REPORTED]
    selection = select(tuple(oldest))
    reported = selection.reported
    beyond = [marker for marker in reported if marker not in first]
    return (*first, *beyond)


def by_precedence(markers: Iterable[CompiledMarker]) -> list[CompiledMarker]:
    """The markers that are not being deleted, the oldest first."""
    live = [marker for marker in markers if not marker.deleting]
    return sorted(live, key=attrgetter("order"))


def entry_too_large(marker: CompiledMarker, containers: Collection[str]) -> bool:
    """Whether the entry of `marker` exceeds the limit for a pod with these containers."""
    size = 0
    for probe in marker.probes:
        if probe.container in containers:
            size += probe.entry_bytes
    return size > ENTRY_BYTES


def left_out_of(
    pod: Pod,
    markers: tuple[CompiledMarker, ...],
    no_room: Collection[str],
) -> Mapping[str, LeftOut]:
    """Why probes of `pod` are left out, by the marker's name.

    `markers` select the pod. `no_room` names the markers whose probes do not fit into the node's NodePodProbe.
    """
    if not no_room and not _may_exceed(markers):
        return NOTHING_LEFT_OUT
    containers = {container.name for container in pod.containers}
    selection = select(markers)
    found = {}
    for marker, why in selection.left_out.items():
        found[marker.key.name] = why
    for marker in selection.considered:
        name = marker.key.name
        if entry_too_large(marker, containers):
            found[name] = ENTRY_TOO_LARGE
        elif name in no_room:
            found[name] = NO_ROOM
    return found


def _may_exceed(markers: Collection[CompiledMarker]) -> bool:
    """Whether these markers may exceed a limit of a pod. A cheap check for the common case."""
    if len(markers) > MARKERS_PER_POD:
        return True
    probes = 0
    keys = 0
    for marker in markers:
        if marker.entry_bytes > ENTRY_BYTES or marker.keys > MAX_MARKER_KEYS:
            return True
        probes += len(marker.probes)
        keys += marker.keys
    if probes > PROBES_PER_POD:
        return True
    return keys > KEYS_PER_POD


def reported_without_room(
    pod: Pod,
    markers: tuple[CompiledMarker, ...],
    running: Collection[str],
) -> Collection[str]:
    """The names of the markers whose conditions on `pod` have the reason REASON_NO_ROOM.

    `running` holds the names of the pod's probes in the NodePodProbe of its node.
    """
    refused = {condition.type for condition in pod.conditions if condition.reason == REASON_NO_ROOM}
    if not refused:  # the common case
        return ()
    found = set()
    for marker in markers:
        for probe in marker.probes:
            if probe.condition_type in refused and probe.name not in running:
                found.add(marker.key.name)
    return found
