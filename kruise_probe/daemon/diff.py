"""Compares a NodePodProbe with the running workers: its probes, their edits, and the results in its status. Pure functions.

Source: Kruise pkg/daemon/podprobe/pod_probe_controller.go (sync), kubelet prober_manager.go (AddPod); KEP-4781 (a kubelet
that restarts keeps the container states it finds).
Differs: an edit lists the changed fields (KEP-6318). A changed pod IP is an edit, not a new probe. Probes are
validated again here, because a NodePodProbe can be written by hand. States are read back from the status. Container id
and probe hash decide whether a state still applies. Kruise's CRD prunes both; then the start time of the container decides.
"""

from typing import Final, NamedTuple

from kruise_probe.api.core import Probe
from kruise_probe.api.keys import NamespacedName, ProbeKey, ProbeName
from kruise_probe.api.problems import ErrorKind, Problem, first_errors
from kruise_probe.api.times import parse_time
from kruise_probe.api.v1alpha1 import (
    ContainerProbe,
    ContainerProbeState,
    NodePodProbeSpec,
    NodePodProbeStatus,
    ProbeState,
)

_FATAL_KINDS: Final = frozenset(
    {ErrorKind.REQUIRED, ErrorKind.INVALID, ErrorKind.NOT_SUPPORTED, ErrorKind.FORBIDDEN}
)


class DesiredProbe(NamedTuple):
    """One probe in the spec: its key, its pod, the pod's address (may be empty) and its entry."""

    key: ProbeKey
    pod: NamespacedName
    ip: str
    entry: ContainerProbe

    @property
    def probe(self) -> Probe:
        """For its numbers only: `entry` may have more that decides about an attempt."""
        return self.entry.probe


class Edit(NamedTuple):
    """Which parts of a probe an edit changes.

    Attributes:
        handler: results of the old handler do not count; the new one runs at once.
        timeout: the attempt in flight is discarded; the probe runs at once. The results counted so far stay.
        timing: period or initial delay; the timer is set again.
        thresholds: apply to the results counted so far.
    """

    handler: bool
    timeout: bool
    timing: bool
    thresholds: bool


def desired_probes(spec: NodePodProbeSpec | None) -> dict[ProbeKey, DesiredProbe]:
    """Every probe in `spec`, in its order; of two with the same key the first counts."""
    desired: dict[ProbeKey, DesiredProbe] = {}
    for pod in (spec and spec.pod_probes) or ():
        name = NamespacedName(pod.namespace, pod.name)
        for each in pod.probes or ():
            key = ProbeKey(pod.uid, each.container_name, ProbeName.parse(each.name))
            desired.setdefault(key, DesiredProbe(key, name, pod.ip, each))
    return desired


def edit_of(before: ContainerProbe, after: ContainerProbe) -> Edit:
    """Compare effective values: setting a field to its default is no edit."""
    old, new = before.probe, after.probe
    return Edit(
        handler=before.attempt != after.attempt,
        timeout=old.effective_timeout_seconds != new.effective_timeout_seconds,
        timing=(
            old.effective_period_seconds != new.effective_period_seconds
            or old.effective_initial_delay_seconds != new.effective_initial_delay_seconds
        ),
        thresholds=(
            old.effective_success_threshold != new.effective_success_threshold
            or old.effective_failure_threshold != new.effective_failure_threshold
        ),
    )


def invalid_reason(entry: ContainerProbe) -> str:
    """Why `entry` cannot run, as the message of its state; empty when it can.

    Not invalid here:

    - Numbers out of range: they are clamped.
    - Sizes, except the command's: older markers may exceed our bounds.
    - `host`: the prober itself reports a failure.
    - A port given as text: the prober uses its number, or reports that there is none.
    """
    broken = first_errors(error for error in entry.errors() if _is_fatal(error))
    return f"InvalidProbe: {'; '.join(map(str, broken))}" if broken else ""


def _is_fatal(error: Problem) -> bool:
    field = error.path.rpartition(".")[2]
    if field == "port" and isinstance(error.value, str):
        return False
    return (
        error.reason in _FATAL_KINDS
        and field != "host"
        and not field.endswith(("Seconds", "Threshold"))
    )


_STATES: Final = frozenset(each.value for each in ProbeState)

Recorded = dict[tuple[str, str], ContainerProbeState]
"""Known states in the status, by pod uid and probe name."""


def recorded_in(status: NodePodProbeStatus | None) -> Recorded:
    """All known states of `status`; of two with the same name the first counts."""
    recorded: Recorded = {}
    for pod in (status and status.pod_probe_statuses) or ():
        for state in pod.probe_states or ():
            if state.state in _STATES:
                recorded.setdefault((pod.uid, state.name), state)
    return recorded


def is_of_container(
    result: ContainerProbeState, container_id: str, started_at: float | None
) -> bool:
    """Whether `result` is of this container, which started at `started_at` (seconds since the epoch).

    Wire times have whole seconds: a probe in the same second as the start counts as after it.
    """
    if result.container_id:
        return result.container_id == container_id
    probed_at = parse_time(result.last_probe_time)
    return bool(started_at and probed_at and int(started_at) <= probed_at.timestamp())
