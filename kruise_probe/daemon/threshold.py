"""The state of one probe as a pure state machine of attempt results, obstacles and containers.

It reads no clock and starts no task; `worker.py` calls it with loop times. Invariants:

- `state` changes to Succeeded or Failed after as many equal results in a row as the threshold requires. They are
  of one container and one handler.
- `state` changes to Unknown after an obstacle has lasted for the grace period, when a container with an initial delay
  replaces another, or when the probe cannot run (`unknown`).
- `state` is None while the probe was neither run nor read back; then nothing is published.

Source: kubelet pkg/kubelet/prober/worker.go (doProbe, resultRun).
Differs: a new container resets the run of results and keeps the state; kubelet keeps the run and resets the state.
A probe that cannot run becomes Unknown after the grace period. Kubelet reports Failure for a container that does not
run, and keeps the old state on errors for ever.
"""

from typing import Final, NamedTuple

from kruise_probe.api.core import Probe
from kruise_probe.api.v1alpha1 import ProbeState

LEAST_GRACE_SECONDS: Final = 30.0
"""Least grace period: an obstacle makes the state Unknown no earlier."""

CONTAINER_RESTARTED: Final = (
    "ContainerRestarted: the container was started anew and is within its initial delay"
)


class Thresholds(NamedTuple):
    """Equal results in a row that change the state, and seconds until an obstacle makes it Unknown."""

    success: int
    failure: int
    grace_seconds: float

    def needed(self, verdict: ProbeState) -> int:
        return self.success if verdict is ProbeState.SUCCEEDED else self.failure


def thresholds_of(probe: Probe) -> Thresholds:
    failure = probe.effective_failure_threshold
    grace = max(float(failure * probe.effective_period_seconds), LEAST_GRACE_SECONDS)
    return Thresholds(probe.effective_success_threshold, failure, grace)


class Obstacle(NamedTuple):
    """Why attempts give no result, and since which loop time.

    `of_container`: no container runs; otherwise it runs and the attempt had no result.
    """

    since: float
    message: str
    of_container: bool


class Record(NamedTuple):
    """The state of one probe and what the next state depends on.

    Attributes:
        state: published, with its message; None while nothing is published.
        verdict: the newest attempt result, with its message; None when none counts yet.
        run: number of equal results in a row, `verdict` included.
        obstacle: why attempts give no result now.
    """

    state: ProbeState | None = None
    message: str = ""
    verdict: ProbeState | None = None
    verdict_message: str = ""
    run: int = 0
    obstacle: Obstacle | None = None


def restored(state: ProbeState, message: str) -> Record:
    """The record of a probe whose state was read back; its attempt results are counted from zero."""
    return Record(state, message)


def verdict_reached(
    record: Record, verdict: ProbeState, message: str, thresholds: Thresholds
) -> Record:
    """Count an attempt result, Succeeded or Failed."""
    run = record.run + 1 if record.verdict is verdict else 1
    return thresholds_changed(
        Record(record.state, record.message, verdict, message, run), thresholds
    )


def settled(record: Record, thresholds: Thresholds) -> bool:
    """Whether the run of results meets the threshold of the current state."""
    if record.verdict is None or record.verdict is not record.state:
        return False
    return record.run >= thresholds.needed(record.verdict)


def thresholds_changed(record: Record, thresholds: Thresholds) -> Record:
    """Apply new thresholds: the results counted so far may meet them."""
    if record.verdict is None or record.run < thresholds.needed(record.verdict):
        return record
    return record._replace(state=record.verdict, message=record.verdict_message)


def not_reached(
    record: Record, message: str, *, of_container: bool, at: float, thresholds: Thresholds
) -> Record:
    """Note an attempt without a result at `at`; not for an unavailable runtime (see `put_on_hold`)."""
    since = record.obstacle.since if record.obstacle else at
    record = record._replace(obstacle=Obstacle(since, message, of_container))
    return time_passed(record, at, thresholds)


def time_passed(record: Record, at: float, thresholds: Thresholds) -> Record:
    """Become Unknown and reset the run of results once an obstacle has lasted for the grace period."""
    if record.obstacle is None or at < record.obstacle.since + thresholds.grace_seconds:
        return record
    return Record(ProbeState.UNKNOWN, record.obstacle.message, obstacle=record.obstacle)


def put_on_hold(record: Record) -> Record:
    """Clear the obstacle: while the runtime is unavailable, the grace period does not run."""
    return record._replace(obstacle=None)


def container_runs(record: Record) -> Record:
    """Clear an obstacle of the container: it runs."""
    if record.obstacle is None or not record.obstacle.of_container:
        return record
    return record._replace(obstacle=None)


def question_changed(record: Record) -> Record:
    """Reset the run of results after an edit of the handler; keep the state until a threshold is met."""
    return Record(record.state, record.message)


def container_changed(record: Record, *, initial_delay: bool) -> Record:
    """Reset the run of results for a new container.

    Without an initial delay the state is kept until a threshold is met.
    """
    if initial_delay and record.state is not None:
        return Record(ProbeState.UNKNOWN, CONTAINER_RESTARTED)
    return Record(record.state, record.message)


def unknown(message: str) -> Record:
    """The record of a probe that cannot run, or has waited too long to run."""
    return Record(ProbeState.UNKNOWN, message)
