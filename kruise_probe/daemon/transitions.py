"""The transitions of the state of one probe: by attempt results, blocking reasons and containers. Pure functions.

`StatePublisher` has the clock and publishes. Invariants:

- `state` changes to Succeeded or Failed after as many equal results in a row as the threshold requires. They are
  of one container and one handler.
- `state` changes to Unknown when an attempt is blocked before the probe had a state, after the probe has been blocked
  for the grace period or on hold for `HOLD_SECONDS`, when a container replaces another and has to wait for its first
  attempt, or when the probe cannot run (`unknown`).
- Only the container itself ends a block by its container, and only the runtime ends a hold: no result does.
- `state` is None while the probe was neither run nor read back; then nothing is published.

Source: kubelet pkg/kubelet/prober/worker.go (doProbe, resultRun), results/results_manager.go.
Differs: a new container resets the run of results and keeps the state; kubelet keeps the run and resets the state.
A probe that cannot run becomes Unknown after the grace period. Kubelet reports Failure for a container that does not
run, and keeps the old state on errors forever.
"""

import math
from typing import Final, NamedTuple

from kruise_probe.api.messages import code_of, normalise_message
from kruise_probe.api.probe import Probe
from kruise_probe.api.v1alpha1 import ProbeState

LEAST_GRACE_SECONDS: Final = 30.0
"""Least grace period: a blocked probe becomes Unknown no earlier."""

HOLD_SECONDS: Final = 180.0
"""How long the container runtime may be unavailable; kubelet's limit for its node (relist threshold)."""

CONTAINER_RESTARTED: Final = "ContainerRestarted: the container is new; wait for its first result"


class Thresholds(NamedTuple):
    """Equal results in a row that change the state, and seconds until a blocked probe becomes Unknown."""

    success: int
    failure: int
    grace_seconds: float

    def needed(self, result: ProbeState) -> int:
        if result is ProbeState.SUCCEEDED:
            return self.success
        return self.failure


def thresholds_of(probe: Probe) -> Thresholds:
    success = probe.effective_success_threshold
    failure = probe.effective_failure_threshold
    until_failed = float(failure * probe.effective_period_seconds)
    grace = max(until_failed, LEAST_GRACE_SECONDS)
    return Thresholds(success, failure, grace)


class Cause(NamedTuple):
    """Why attempts give no result, and since which loop time.

    `by_container`: no container runs; otherwise it runs, or the container runtime cannot be asked.
    """

    since: float
    message: str
    by_container: bool = False


class Outcome(NamedTuple):
    """A state, with its message and what the output of its attempt had as epoch."""

    state: ProbeState
    message: str
    epoch: int | None = None


class Record(NamedTuple):
    """The state of one probe and what the next state depends on.

    Attributes:
        shown: the state that is published; None while nothing is.
        newest: result of the newest attempt; None when none counts yet. It is `shown` if it confirms the state.
        run: number of equal results in a row, `newest` included.
        blocked: why attempts give no result now. Its grace period does not run during a hold.
        hold: the container runtime is unavailable.
    """

    shown: Outcome | None = None
    newest: Outcome | None = None
    run: int = 0
    blocked: Cause | None = None
    hold: Cause | None = None


def result_observed(record: Record, result: Outcome, thresholds: Thresholds) -> Record:
    """Count the result of an attempt, Succeeded or Failed."""
    run = 1
    before = record.newest
    if before is not None and before.state is result.state:
        run += record.run
    counted = Record(record.shown, result, run)
    return thresholds_changed(counted, thresholds)


def thresholds_changed(record: Record, thresholds: Thresholds) -> Record:
    """Apply new thresholds: the results counted so far may meet them."""
    newest = record.newest
    if newest is None:
        return record
    needed = thresholds.needed(newest.state)
    if record.run < needed:
        return record
    return record._replace(shown=newest)


def attempt_blocked(record: Record, message: str, *, by_container: bool, at: float) -> Record:
    """Note at `at` why there is no result; not for an unavailable runtime (see `put_on_hold`).

    Without a state to protect, the probe becomes Unknown at once, and the attempt results counted so far stay. A
    container that does not run yet keeps its grace period: every new pod begins so.

    The first text of a reason stays: a runtime whose error text has an id would cause a write at each attempt.
    """
    before = record.blocked
    since = at
    if before is not None:
        since = before.since
        if not before.by_container and not by_container:
            message = _first_text(before.message, message)
    message = normalise_message(message)
    cause = Cause(since, message, by_container)
    shown = record.shown
    has_state = shown is not None and shown.state is not ProbeState.UNKNOWN
    if by_container or has_state:
        return record._replace(blocked=cause)
    shown = Outcome(ProbeState.UNKNOWN, message)
    return record._replace(shown=shown, blocked=cause)


def _first_text(before: str, message: str) -> str:
    """The text before, if it has the same reason."""
    if code_of(before) == code_of(message):
        return before
    return message


def put_on_hold(record: Record, message: str, at: float) -> Record:
    """Note at `at` why the container runtime cannot be asked. A text that is published already stays."""
    since = at
    before = record.hold
    if before is not None:
        shown = record.shown
        if shown is not None and shown.message == before.message:
            return record
        since = before.since
    cause = Cause(since, normalise_message(message))
    return record._replace(hold=cause)


def end_hold(record: Record, at: float) -> Record:
    """The runtime is available again: the grace period goes on where the hold stopped it."""
    hold = record.hold
    if hold is None:
        return record
    blocked = record.blocked
    if blocked is not None:
        held_seconds = max(at - hold.since, 0.0)
        since = blocked.since + held_seconds
        blocked = blocked._replace(since=since)
    return record._replace(blocked=blocked, hold=None)


def container_runs(record: Record) -> Record:
    """Clear a blocking reason of the container: it runs."""
    blocked = record.blocked
    if blocked is None or not blocked.by_container:
        return record
    return record._replace(blocked=None)


def unknown_at(record: Record, thresholds: Thresholds) -> float:
    """Loop time at which the probe becomes Unknown; infinite while nothing keeps its results away."""
    if record.hold is not None:
        return record.hold.since + HOLD_SECONDS
    if record.blocked is not None:
        return record.blocked.since + thresholds.grace_seconds
    return math.inf


def time_passed(record: Record, at: float, thresholds: Thresholds) -> Record:
    """Become Unknown and reset the run of results once that time has come."""
    blocked = record.blocked
    hold = record.hold
    cause = hold or blocked
    if cause is None or at < unknown_at(record, thresholds):
        return record
    shown = Outcome(ProbeState.UNKNOWN, cause.message)
    return Record(shown, blocked=blocked, hold=hold)


def handler_replaced(record: Record) -> Record:
    """Reset the run of results; the state is kept until a threshold is met. No edit lets a container run."""
    blocked = record.blocked
    if blocked is not None and not blocked.by_container:
        blocked = None
    return Record(record.shown, blocked=blocked, hold=record.hold)


def container_replaced(record: Record, *, keep_state: bool) -> Record:
    """Begin with the first or another container that runs.

    `keep_state`: until a threshold is met. Otherwise a known state becomes Unknown.
    """
    if keep_state or record.shown is None:
        return Record(record.shown)
    return unknown(CONTAINER_RESTARTED)


def unknown(message: str) -> Record:
    """The record of a probe that cannot run, or has waited too long to run."""
    shown = Outcome(ProbeState.UNKNOWN, normalise_message(message))
    return Record(shown)
