"""What the verdicts on one probe amount to: pure state machine of thresholds, obstacles and containers.

Knows nothing of clocks, tasks or Kubernetes; `worker.py` feeds it, times are loop times. Invariants: `state`
changes to Succeeded or Failed only with as many equal verdicts in a row as its threshold asks for, of one
container and one question; it changes to Unknown only when an obstacle has lasted for the grace, or when a
container with an initial delay takes over. None as state: nothing was probed nor read back, nothing is published.

Source: kubelet pkg/kubelet/prober/worker.go (doProbe, resultRun).
Differs: a new container starts a new run of verdicts and keeps the state (kubelet: the other way round); what
cannot be probed becomes Unknown in time, where kubelet says Failure of a container that does not run and keeps
the old state on errors for ever.
"""

from typing import Final, NamedTuple

from kruise_probe.api.core import Probe
from kruise_probe.api.v1alpha1 import ProbeState

LEAST_GRACE_SECONDS: Final = 30.0
"""How long an obstacle lasts at least before the state becomes Unknown."""

CONTAINER_RESTARTED: Final = (
    "ContainerRestarted: the container was started anew and is within its initial delay"
)


class Thresholds(NamedTuple):
    """Verdicts in a row that change the state, and seconds until an obstacle makes it Unknown."""

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
    """Why no verdict is reached, and since which loop time there has been none.

    `of_container`: there is none that runs; otherwise it runs and the attempt came to nothing.
    """

    since: float
    message: str
    of_container: bool


class Record(NamedTuple):
    """All that is remembered of one probe.

    Attributes:
        state: what is published, with its message; None while nothing may be.
        verdict: the newest verdict, with its message; None when none counts yet.
        run: how many equal verdicts end with it.
        obstacle: what keeps verdicts away at present.
    """

    state: ProbeState | None = None
    message: str = ""
    verdict: ProbeState | None = None
    verdict_message: str = ""
    run: int = 0
    obstacle: Obstacle | None = None


def restored(state: ProbeState, message: str) -> Record:
    """The record of a probe whose last state was read back: known, but no verdict counts."""
    return Record(state, message)


def verdict_reached(
    record: Record, verdict: ProbeState, message: str, thresholds: Thresholds
) -> Record:
    """After a verdict, Succeeded or Failed."""
    run = record.run + 1 if record.verdict is verdict else 1
    return thresholds_changed(
        Record(record.state, record.message, verdict, message, run), thresholds
    )


def settled(record: Record, thresholds: Thresholds) -> bool:
    """Whether the newest verdicts alone are enough for the state."""
    if record.verdict is None or record.verdict is not record.state:
        return False
    return record.run >= thresholds.needed(record.verdict)


def thresholds_changed(record: Record, thresholds: Thresholds) -> Record:
    """After an edit of the thresholds: the verdicts counted so far may be enough now."""
    if record.verdict is None or record.run < thresholds.needed(record.verdict):
        return record
    return record._replace(state=record.verdict, message=record.verdict_message)


def not_reached(
    record: Record, message: str, *, of_container: bool, at: float, thresholds: Thresholds
) -> Record:
    """After there was no verdict at `at`, for another reason than the runtime being away."""
    since = record.obstacle.since if record.obstacle else at
    record = record._replace(obstacle=Obstacle(since, message, of_container))
    return time_passed(record, at, thresholds)


def time_passed(record: Record, at: float, thresholds: Thresholds) -> Record:
    """Unknown, and no verdict counts any more, once an obstacle has lasted for the grace."""
    if record.obstacle is None or at < record.obstacle.since + thresholds.grace_seconds:
        return record
    return Record(ProbeState.UNKNOWN, record.obstacle.message, obstacle=record.obstacle)


def put_on_hold(record: Record) -> Record:
    """While the runtime is away nothing is known of obstacles, so they do not last either."""
    return record._replace(obstacle=None)


def container_runs(record: Record) -> Record:
    """The container can be probed, which ends an obstacle of that kind."""
    if record.obstacle is None or not record.obstacle.of_container:
        return record
    return record._replace(obstacle=None)


def question_changed(record: Record) -> Record:
    """After an edit of handler or timeout: the state stands until the new question has its answer."""
    return Record(record.state, record.message)


def container_changed(record: Record, *, initial_delay: bool) -> Record:
    """Another container takes over: its verdicts are counted from nothing.

    Without an initial delay the state stands until the first threshold is met.
    """
    if initial_delay and record.state is not None:
        return Record(ProbeState.UNKNOWN, CONTAINER_RESTARTED)
    return Record(record.state, record.message)


def unknown(message: str) -> Record:
    """The record of a probe that cannot run, or has waited too long to run: no verdict counts."""
    return Record(ProbeState.UNKNOWN, message)
