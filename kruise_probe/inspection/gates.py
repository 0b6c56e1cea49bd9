"""The readiness gates of a pod, and whether a probe writes the condition of each. Pure.

If no component writes the condition of a gate, the pod never becomes ready. The gates of a pod are immutable.
"""

from typing import Final

from kruise_probe.inspection.link import Link, Standing
from kruise_probe.inspection.remedies import remedy_of
from kruise_probe.inspection.selection import alike
from kruise_probe.inspection.snapshot import SeenPod, Snapshot

NAME: Final = "readiness gate"


def gates_of(snapshot: Snapshot, seen: SeenPod) -> list[Link]:
    """One link for each gate, sorted by condition type.

    Another component may write a gate that no probe writes. Such a gate is only broken if a probe writes a similar
    name.
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
