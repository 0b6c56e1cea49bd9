"""A link of a trace, and the input that links are computed from."""

from enum import StrEnum
from typing import NamedTuple

from kruise_probe.api.v1alpha1 import ContainerProbeState, PodContainerProbe, PodProbeMarker
from kruise_probe.controllers.compiled import CompiledMarker
from kruise_probe.controllers.limits import LeftOut
from kruise_probe.controllers.pods.claims import Claim, Conflict
from kruise_probe.inspection.remedies import remedy_of
from kruise_probe.inspection.snapshot import SeenPod, Snapshot


class Standing(StrEnum):
    OK = "ok"
    WAITING = "waiting"
    BROKEN = "broken"


class Link(NamedTuple):
    """One step from a marker to its marks.

    Attributes:
        text: the current state.
        reason: for programs; empty if the link is OK.
        remedy: what to do; empty if the link is OK.
    """

    name: str
    standing: Standing
    text: str
    reason: str = ""
    remedy: str = ""


class Finding(NamedTuple):
    """One probe of one pod, with everything that its links are computed from."""

    snapshot: Snapshot
    seen: SeenPod
    source: PodProbeMarker
    marker: CompiledMarker
    probe: PodContainerProbe
    claim: Claim | None
    conflicts: tuple[Conflict, ...]
    virtual: bool
    state: ContainerProbeState | None
    left_out: LeftOut | None

    @property
    def name(self) -> str:
        return f"{self.marker.key.name}#{self.probe.name}"


def broken(name: str, reason: str, text: str, remedy: str = "") -> Link:
    return Link(name, Standing.BROKEN, text, reason, remedy or remedy_of(reason))


def waiting(name: str, reason: str, text: str) -> Link:
    return Link(name, Standing.WAITING, text, reason, remedy_of(reason))
