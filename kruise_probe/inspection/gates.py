"""The readiness gates of a pod, and whether a probe writes the condition that each one waits for. Pure.

A gate whose condition nobody writes keeps its pod out of service for ever, and cannot be changed on the pod.
"""

from typing import Final

from kruise_probe.inspection.link import Link, Standing
from kruise_probe.inspection.remedies import remedy_of
from kruise_probe.inspection.selection import alike
from kruise_probe.inspection.snapshot import SeenPod, Snapshot

NAME: Final = "readiness gate"


def gates_of(snapshot: Snapshot, seen: SeenPod) -> list[Link]:
    """One link for each gate, by condition type.

    A gate that no probe writes may be somebody else's, so it is called broken only where a probe writes nearly its name.
    """
    pod = seen.pod
    writers = {
        probe.condition_type: f"{marker.key.name}#{probe.probe}"
        for marker in reversed(snapshot.markers_of(pod))
        if marker.live
        for probe in marker.probes
        if probe.condition_type
    }
    return [_gate(seen, each, writers) for each in sorted(pod.readiness_gates)]


def _gate(seen: SeenPod, gate: str, writers: dict[str, str]) -> Link:
    condition = seen.pod.condition(gate)
    status = f"is {condition.status}" if condition else "is not on the pod"
    if gate in writers:
        return Link(NAME, Standing.OK, f"{gate} {status}, written by {writers[gate]}")
    meant = alike(gate, writers)
    if meant and condition is None:
        text = f"{gate} is not on the pod, and no probe writes it{meant}"
        return Link(NAME, Standing.BROKEN, text, "GateUnwritten", remedy_of("GateUnwritten"))
    return Link(NAME, Standing.OK, f"{gate} {status}; no probe that selects this pod writes it")
