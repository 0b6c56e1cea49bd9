"""A link is one step from a marker to its marks on a pod: its state, its input, its reason, and what to do if it is broken.

Meanings and remedies of all reasons are in `reasons.yaml`, from which `docs/reasons.md` is generated too.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Final, NamedTuple

import msgspec

from kruise_probe.api.meta import Condition, NamespacedName
from kruise_probe.api.names import PAUSED_ANNOTATION, REASON_PAUSED
from kruise_probe.api.node_pod_probe import ContainerProbeState, PodProbe
from kruise_probe.api.pods import Mark
from kruise_probe.api.v1alpha1 import ContainerProbe, PodContainerProbe, PodProbeMarker
from kruise_probe.controllers.budget import entry_bytes
from kruise_probe.controllers.claims import Claim, ClaimConflict
from kruise_probe.controllers.compiled import CompiledMarker, Wanted
from kruise_probe.controllers.conditions import listed
from kruise_probe.controllers.limits import LeftOut
from kruise_probe.controllers.plan import probes_of_marker
from kruise_probe.inspection.seen_pods import SeenPod
from kruise_probe.inspection.snapshot import Snapshot
from kruise_probe.inspection.views import JsonView

PLACEHOLDERS: Final = {
    "pod": "POD -n NAMESPACE",
    "marker": "MARKER -n NAMESPACE",
    "object": "KIND NAME -n NAMESPACE",
    "container": "CONTAINER",
    "labels": "the labels of its pods",
    "gate": "PodProbeMarkerGate",
}
"""The words in braces that a remedy may have, and their texts if the names are not known."""


class ReasonEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`meaning` and `remedy` are Markdown. There is no remedy if there is nothing to do.

    A link with this reason is broken, or it `waits` and resolves by itself.
    """

    meaning: str
    remedy: str = ""
    waits: bool = False


class ReasonSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of the page; `text` is its introduction."""

    title: str
    reasons: dict[str, ReasonEntry]
    text: str = ""


@cache
def reason_sections() -> tuple[ReasonSection, ...]:
    """The table. It is read when a link first needs a remedy, because a cluster without problems needs none."""
    table = files(__package__).joinpath("reasons.yaml").read_bytes()
    return msgspec.yaml.decode(table, type=tuple[ReasonSection, ...])


@cache
def reason_table() -> Mapping[str, ReasonEntry]:
    table: dict[str, ReasonEntry] = {}
    for section in reason_sections():
        table.update(section.reasons)
    return table


def remedy_of(reason: str, **names: str) -> str:
    """What to do about a broken or waiting link, with commands to paste at its end; `names` replace PLACEHOLDERS."""
    entry = reason_table().get(reason, _NO_ENTRY)
    text = entry.remedy.replace("`", "")
    return text.format_map({**PLACEHOLDERS, **names})


_NO_ENTRY: Final = ReasonEntry("")


def address_of(reason: str) -> str:
    """The address of a reason's documentation; empty for one that the page does not have."""
    if reason not in reason_table():
        return ""
    return f"https://kruise-probe.github.io/kruise-probe/reasons.html#{reason.lower()}"


class LinkState(StrEnum):
    """A waiting link resolves by itself; a broken one needs action. NONE: it is no link, but what the pod shows otherwise."""

    OK = "ok"
    WAITING = "waiting"
    BROKEN = "broken"
    NONE = ""


class Link(JsonView, frozen=True):
    """One step from a marker to its marks, also in `-o json`.

    Attributes:
        text: what was found.
        reason: for programs; empty if the link is OK.
        remedy: what to do. A link that is OK has one if its result has a known cause, such as a port that nothing listens on.
    """

    name: str = msgspec.field(name="link")
    state: LinkState
    text: str
    reason: str = ""
    remedy: str = ""


class Found(NamedTuple):
    """What a link found. Without a reason it is OK; `remedy` and `waits` override those of the reason."""

    text: str = ""
    reason: str = ""
    remedy: str = ""
    waits: bool = False


def link_of(name: str, found: Found, **names: str) -> Link:
    """The link; `names` as in `remedy_of`."""
    text, reason, remedy, waits = found
    if not reason:
        return Link(name, LinkState.OK, text, remedy=remedy)
    entry = reason_table().get(reason, _NO_ENTRY)
    state = LinkState.BROKEN
    if waits or entry.waits:
        state = LinkState.WAITING
    if not remedy:
        remedy = remedy_of(reason, **names)
    return Link(
        name,
        state,
        text,
        reason,
        remedy,
    )


def of_limit(left_out: LeftOut) -> Found:
    """Why the probe is left out."""
    reason, why, remedy = left_out
    return Found(why, reason, remedy)


class ProbeContext(NamedTuple):
    """One probe of one pod, with everything that its links are computed from.

    `entry` is the pod's entry in NodePodProbe.spec, `current` the probe in it, `result` what the node reported, and
    `of_condition` the result that the pod's condition shows.
    """

    snapshot: Snapshot
    pod: SeenPod
    source: PodProbeMarker
    marker: CompiledMarker
    probe: PodContainerProbe
    claim: Claim | None
    conflicts: tuple[ClaimConflict, ...]
    virtual: bool
    entry: PodProbe | None
    result: ContainerProbeState | None
    of_condition: ContainerProbeState | None
    left_out: LeftOut | None

    @property
    def name(self) -> str:
        return f"{self.marker.key.name}#{self.probe.name}"

    @property
    def names(self) -> dict[str, str]:
        """The names in remedies; see `remedy_of`."""
        gate = "PodProbeMarkerGate"
        if self.virtual:
            gate = "EnablePodProbeMarkerOnServerless"
        pod = in_kubectl(self.pod.key)
        marker = in_kubectl(self.marker.key)
        paused_object = f"pod {pod}"
        if self.marker.paused:
            paused_object = f"podprobemarker {marker}"
        return {
            "pod": pod,
            "marker": marker,
            "object": paused_object,
            "container": self.probe.container_name,
            "gate": gate,
        }

    @property
    def state(self) -> str:
        """What the node reported; empty without a result."""
        return self.result.state if self.result is not None else ""

    @property
    def exclusive(self) -> Claim | None:
        """The claim, if the probe gives a role."""
        claim = self.claim
        if claim is None or claim.exclusive is None:
            return None
        return claim

    @property
    def current(self) -> ContainerProbe | None:
        if self.entry is None:
            return None
        for probe in self.entry.probes:
            if probe.name == self.name:
                return probe
        return None

    def planned(self, started: frozenset[str]) -> ContainerProbe:
        """The probe as the manager sends it to the node once the containers `started`."""
        planned = probes_of_marker(self.marker, self.pod.containers, started)
        by_name = {probe.name: probe for probe in planned.probes}
        return by_name[self.name]

    @property
    def needed_bytes(self) -> int:
        """What the probes of the marker on this pod add to the NodePodProbe of its node, if none are there."""
        pod = self.pod
        planned = probes_of_marker(self.marker, pod.containers, pod.started)
        if self.entry is not None:
            return planned.size_bytes
        alone = PodProbe(pod.name, pod.namespace, pod.uid, pod.ip, planned.probes)
        return entry_bytes(alone)

    @property
    def is_outdated(self) -> bool:
        """Whether the daemon has no result of the edited probe yet; False if it reports no hash, as Kruise's daemon."""
        current = self.current
        result = self.result
        if current is None or result is None:
            return False
        hash_of_result = result.probe_hash
        return bool(hash_of_result) and hash_of_result != current.hash

    def wanted_in(self, state: str) -> Wanted | None:
        """The labels and annotations of a state; None if the state changes none."""
        if self.claim is None:
            return None
        return self.claim.wanted.get(state)

    def is_from_message(self, mark: Mark) -> bool:
        return self.claim is not None and self.claim.is_from_message(mark)

    def conflict(self, *, of_condition: bool) -> str:
        """The owners of the condition type, or of the other marks, that the probe may not write; empty if there are none."""
        found = []
        for conflict in self.conflicts:
            is_condition = conflict.mark.field == "conditions"
            if is_condition is of_condition:
                found.append(str(conflict))
        return listed(found)

    def reported(self, *reasons: str) -> Condition | None:
        """The marker's condition with one of these reasons whose message names the pod."""
        pod = str(self.pod.key)
        for condition in self.source.conditions:
            if condition.reason not in reasons:
                continue
            names = _NAMES.findall(condition.message)
            if pod in names:
                return condition
        return None


_NAMES: Final = re.compile(r"[\w./-]*\w")
"""The names of objects in a message."""


def paused(what: str) -> Found:
    return Found(
        f"{what} has the annotation {PAUSED_ANNOTATION}=true, so its probes are paused; conditions and marks stay",
        REASON_PAUSED,
    )


def in_kubectl(key: NamespacedName) -> str:
    """The arguments with which kubectl finds an object."""
    return f"{key.name} -n {key.namespace}"
