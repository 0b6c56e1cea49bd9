"""What a probe does with a container that it begins to use: keep its state or not, and when the first attempt runs. Pure.

The state may be of another container, of another probe, or from before a reboot of the node.

Source: kubelet pkg/kubelet/prober/worker.go (doProbe), KEP-4781 (states that a restarted kubelet finds).
Differs: a state that another daemon published is kept while it is not too old. Kubelet starts again with Failure.
"""

import math
from typing import Final, NamedTuple

from kruise_probe.api.node_pod_probe import ContainerProbeState
from kruise_probe.api.v1alpha1 import ProbeState
from kruise_probe.daemon import schedule
from kruise_probe.daemon.schedule import StartTime, Timing
from kruise_probe.daemon.status import is_of_container

SILENCE_SLACK_SECONDS: Final = 20.0
"""Longest time between two signs of life of a healthy daemon: renewals of its Lease, and writes of its status."""


class Handover(NamedTuple):
    """What a worker knows from the time before it. Used until it has a container.

    Attributes:
        result: published before: read back from the status, or kept when the NodePodProbe was deleted.
        from_start: the probe was in the spec when this daemon started.
        watched_until: loop time until which a daemon may have probed; infinite if nothing was missed.
    """

    result: ContainerProbeState | None = None
    from_start: bool = False
    watched_until: float = math.inf


NO_HANDOVER: Final = Handover()


class Adoption(NamedTuple):
    """How a probe begins with a container.

    Attributes:
        same: the state is a result of this container.
        keep_state: until the container's first threshold is met; otherwise a known state becomes Unknown.
        due: loop time of the first attempt; None for the next tick on phase.
    """

    same: bool
    keep_state: bool
    due: float | None


def adoption(
    started_at: float | None,
    handover: Handover,
    *,
    had_container: bool,
    probe_hash: str,
    timing: Timing,
    daemon_start: StartTime,
    delay_ends: float,
    grace_seconds: float,
    loop_now: float,
    wall_now: float,
) -> Adoption:
    """How a probe begins with a container that runs.

    Args:
        started_at: of the container, in seconds since the epoch; None if the runtime does not know it.
        handover: empty if this daemon probed another container before.
        had_container: whether it did.
        probe_hash: of the probe.
        timing: of the probe.
        daemon_start: of this daemon.
        delay_ends: loop time of the end of the container's initial delay.
        grace_seconds: how long a state is kept without attempts.
        loop_now: current loop time.
        wall_now: current wall time, in seconds since the epoch.
    """
    result = handover.result
    same = False
    of_another = had_container
    in_delay = delay_ends > loop_now
    if result is not None:
        same = is_of_container(result, started_at, wall_now, in_delay=in_delay)
        of_another = of_another or not same
    unwatched_from = handover.watched_until + grace_seconds
    was_unwatched = daemon_start.loop_seconds >= unwatched_from
    # The state of another container is kept until the first result of this one, if that comes soon.
    keep_state = True
    if of_another and (in_delay or was_unwatched):
        keep_state = False
    if in_delay:
        return Adoption(same, keep_state, delay_ends)
    if same and _is_known(result, probe_hash):
        return Adoption(same, keep_state, None)
    due = loop_now
    ran_before = started_at is not None and started_at <= daemon_start.wall_seconds
    if ran_before and handover.from_start:
        due = schedule.due_after_restart(daemon_start, timing, loop_now)
    return Adoption(same, keep_state, due)


def _is_known(result: ContainerProbeState | None, probe_hash: str) -> bool:
    """Whether the state is a result of the same probe; Kruise's CRD prunes the hash."""
    if result is None or result.state == ProbeState.UNKNOWN:
        return False
    if result.probe_hash is None:
        return True
    return result.probe_hash == probe_hash
