"""The worker of one probe of one container: runs attempts on schedule and publishes the state.

`schedule` decides when to probe, `aim` where, and `threshold` the state. An idle worker holds one timer; it has a task
only while an attempt is in flight.

Source: kubelet pkg/kubelet/prober/worker.go.
Differs: no loop per worker. Edits apply field by field (KEP-6318). There are no attempts while the container does not
run or does not exist. An exec probe that hangs runs less often.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

import msgspec
import structlog

from kruise_probe.api.core import Probe
from kruise_probe.api.v1alpha1 import ProbeState
from kruise_probe.daemon import metrics, schedule, threshold
from kruise_probe.daemon.aim import Containers, HostAddresses, Missing, aim_at, target_of
from kruise_probe.daemon.attempts import Attempts, Spawn
from kruise_probe.daemon.cri.containers import ContainerView
from kruise_probe.daemon.diff import Entry, edit_of, refusal_of
from kruise_probe.daemon.identity import handler_type, probe_hash
from kruise_probe.daemon.metrics import ProbeSeries
from kruise_probe.daemon.probers.messages import clean_message
from kruise_probe.daemon.probers.prober import (
    REASON_CONTAINER_NOT_CREATED,
    REASON_CONTAINER_NOT_RUNNING,
    REASON_EXEC_QUEUED,
    REASON_INVALID_PROBE,
    REASON_RUNTIME_UNAVAILABLE,
    CouldNotProbe,
    Outcome,
    Prober,
    Verdict,
)
from kruise_probe.daemon.readback import ReadbackMatch, readback_match
from kruise_probe.daemon.results import Change, Result, Results
from kruise_probe.daemon.schedule import Anchor
from kruise_probe.daemon.standstill import Standstill
from kruise_probe.daemon.threshold import Record
from kruise_probe.daemon.ticker import Ticker

_REASONS_TO_REFRESH = frozenset(
    {REASON_CONTAINER_NOT_CREATED, REASON_CONTAINER_NOT_RUNNING, REASON_RUNTIME_UNAVAILABLE}
)


def _noop() -> None: ...


class WorkerContext(NamedTuple):
    """Dependencies that all workers of a daemon share.

    Attributes:
        anchor: the instant that ticks are computed from.
        spawn: starts the task of an attempt; its owner cancels it at the end.
        standstill: records when this process stalled and so read responses too late.
        on_transition: called with the entry and its new result when the state became Succeeded or Failed.
        now: the wall clock.
    """

    anchor: Anchor
    containers: Containers
    host_addresses: HostAddresses
    prober_factory: Callable[[Probe], Prober]
    results: Results
    spawn: Spawn
    standstill: Standstill
    on_transition: Callable[[Entry, Result], None]
    now: Callable[[], datetime]


class Worker:
    """Runs one entry until halted. Never two attempts of it at once.

    Args:
        recorded: published before: read back from the status, or kept when the NodePodProbe was deleted.
        from_start: the entry was in the spec when this daemon started.
    """

    def __init__(
        self, entry: Entry, context: WorkerContext, *, recorded: Result | None, from_start: bool
    ) -> None:
        self.entry = entry
        self.series = ProbeSeries(
            container=entry.key.container,
            pod=entry.pod.name,
            namespace=entry.pod.namespace,
            pod_uid=entry.key.pod_uid,
            probe=str(entry.key.probe),
        )
        self._context = context
        self._recorded = recorded
        self._from_start = from_start
        self._loop = asyncio.get_running_loop()
        self._log = structlog.get_logger().bind(
            pod=str(entry.pod), container=entry.key.container, probe=str(entry.key.probe)
        )
        timing = schedule.timing_of(entry.key.pod_uid, entry.key.container, entry.probe)
        self._ticker = Ticker(context.anchor, timing, self._tick)
        self._configure()

        self._record = (
            threshold.restored(recorded.state, recorded.message) if recorded else Record()
        )
        self._container_id = ""
        self._started_at: float | None = None
        self._attempted = False
        self._timeouts_in_a_row = 0
        self._internal_error_logged = False
        self._unsubscribe: Callable[[], None] = _noop

        self._attempts = Attempts(
            context.spawn,
            context.standstill,
            on_outcome=self._on_outcome,
            on_failure=self._on_failure,
            on_end=self._ticker.probe_ended,
        )
        self._grace_timer: asyncio.TimerHandle | None = None

    def _configure(self) -> None:
        probe = self.entry.probe
        key = self.entry.key
        self._ticker.timing = schedule.timing_of(key.pod_uid, key.container, probe)
        self._thresholds = threshold.thresholds_of(probe)
        self._hash = probe_hash(probe)
        self.series.type = handler_type(probe)
        self._refusal = refusal_of(probe)
        self._prober = None if self._refusal else self._context.prober_factory(probe)

    # Calls of the supervisor and of the containers; all are synchronous.

    def start(self) -> None:
        """Restore the recorded result, and subscribe to the container."""
        key = self.entry.key
        if self._recorded is not None:
            self._context.results.restore(key, self._recorded)
            self.series.state = self._recorded.state.value
        self._unsubscribe = self._context.containers.subscribe(
            key.pod_uid, key.container, self._on_container_change
        )
        if self._refusal:
            self._publish(threshold.unknown(self._refusal))
        else:
            self._sync_container()

    def _on_container_change(self) -> None:
        if self._refusal:
            return
        try:
            self._sync_container()
        except Exception as error:  # noqa: BLE001 - one bad probe never stops another
            self._report_internal_error(error)

    def edit(self, entry: Entry) -> None:
        """Apply a new version of the entry; every field takes effect at once."""
        old, self.entry = self.entry, entry
        edit = edit_of(old.probe, entry.probe)
        probe_again = (
            edit.handler
            or (edit.timeout and self._attempts.under_way)
            or (old.ip != entry.ip and self._record.obstacle is not None)
        )
        if any(edit):
            self._configure()
        if edit.handler or edit.timeout:
            self._discard_attempt()
        if edit.handler:
            self._record = threshold.question_changed(self._record)
        if edit.thresholds:
            self._publish(threshold.thresholds_changed(self._record, self._thresholds))
        if self._refusal:
            self._stop_timers()
            self._publish(threshold.unknown(self._refusal))
            return
        self._reset_grace_timer()
        if not self._container_id:
            self._sync_container()
        elif probe_again or edit.timing:
            self._restart_timer(probe_again=probe_again)

    def halt(self) -> None:
        """Stop at once; keep the results."""
        self._unsubscribe()
        self._stop_timers()
        self._discard_attempt()

    def _stop_timers(self) -> None:
        self._ticker.stop()
        if self._grace_timer is not None:
            self._grace_timer.cancel()
        self._grace_timer = None

    def _discard_attempt(self) -> None:
        self._timeouts_in_a_row = 0
        self._ticker.stretch_to(1)
        self._attempts.discard()

    def _restart_timer(self, *, probe_again: bool) -> None:
        due = self._first_due()
        if probe_again or not self._attempted or due > self._loop.time():
            self._ticker.tick_at(due)
        else:
            self._ticker.tick_on_phase()

    def _first_due(self) -> float:
        return schedule.first_due(
            loop_now=self._loop.time(),
            wall_now=self._context.now().timestamp(),
            started_at=self._started_at,
            initial_delay_seconds=self.entry.probe.effective_initial_delay_seconds,
        )

    # The container.

    def _sync_container(self) -> ContainerView | None:
        """Adopt a new container, or publish why none runs.

        Returns the container if it runs and was adopted before, else None: there is nothing to probe in this tick.
        """
        aim = aim_at(self._context.containers, self.entry)
        if aim is None:
            self._record = threshold.put_on_hold(self._record)
            return None
        if isinstance(aim, Missing):
            self._publish_obstacle(str(aim), of_container=True)
            return None
        if aim.id != self._container_id:
            self._adopt(aim)
            return None
        self._record = threshold.container_runs(self._record)
        return aim

    def _adopt(self, view: ContainerView) -> None:
        """Switch to a new container: first its initial delay, then ticks on phase."""
        self._discard_attempt()
        self._started_at = view.started_at.timestamp() if view.started_at else None
        recorded, self._recorded = self._recorded, None
        match = recorded and readback_match(
            recorded, container_id=view.id, started_at=self._started_at, probe_hash=self._hash
        )
        replaced = bool(self._container_id) or match is ReadbackMatch.OTHER
        ran_before = not self._container_id and self._ran_before_the_daemon()
        self._container_id = view.id
        self._attempted = False
        delayed = self.entry.probe.effective_initial_delay_seconds > 0
        self._publish(threshold.container_changed(self._record, initial_delay=replaced and delayed))
        due = self._first_due()
        is_known = match is ReadbackMatch.SAME and self._record.state is not ProbeState.UNKNOWN
        if due > self._loop.time() or not (is_known or ran_before):
            self._ticker.tick_at(due)
        elif is_known:
            self._ticker.tick_on_phase()
        else:
            self._ticker.tick_at(
                schedule.due_after_restart(self._context.anchor, self._ticker.timing, due)
            )

    def _ran_before_the_daemon(self) -> bool:
        return (
            self._from_start
            and self._started_at is not None
            and self._started_at <= self._context.anchor.wall_seconds
        )

    # An attempt.

    def _tick(self) -> bool:
        if self._attempts.under_way:
            self._report_queued()
            return False
        try:
            view = self._sync_container()
        except Exception as error:  # noqa: BLE001 - one bad probe never stops another
            self._report_internal_error(error)
            return True
        if view is not None and self._prober is not None:
            self._attempted = True
            target = target_of(view, self.entry, self._context.host_addresses)
            self._attempts.begin(self._prober, target)
        return True

    def _report_queued(self) -> None:
        """Publish Unknown if the attempt in flight has waited too long in the exec queue; it keeps waiting."""
        obstacle, reported = self._record.obstacle, self._record.message
        if self._prober is None or reported.startswith(REASON_EXEC_QUEUED):
            return
        if not self._context.containers.available or (obstacle and obstacle.of_container):
            return  # Something other than the queue blocks it.
        if (queued := self._prober.queued_too_long()) is not None:
            self._publish(threshold.unknown(str(queued)))

    def _on_outcome(self, outcome: Outcome, seconds: float) -> None:
        if outcome.verdict is Verdict.SUCCESS:
            state = ProbeState.SUCCEEDED
            self.series.succeeded(seconds)
        else:
            state = ProbeState.FAILED
            self.series.failed += 1
        exec_timed_out = outcome.timed_out and self.entry.probe.exec is not None
        self._timeouts_in_a_row = self._timeouts_in_a_row + 1 if exec_timed_out else 0
        factor = schedule.stretch(self._timeouts_in_a_row, self._thresholds.failure)
        self._ticker.stretch_to(factor)
        self._internal_error_logged = False
        message = outcome.message if factor == 1 else self._stuck_message(outcome.message, factor)
        self._publish(
            threshold.verdict_reached(self._record, state, message, self._thresholds),
            probed=True,
        )

    def _stuck_message(self, message: str, factor: int) -> str:
        """The message of a command that times out every time, with what its author can do."""
        every = factor * self._ticker.timing.period_seconds
        return clean_message(
            f"{message} (ExecStuck: each time, so it is asked every {every:g} s only; end what the command starts, or "
            "give the container an init)"
        )

    def _on_failure(self, error: Exception) -> None:
        if isinstance(error, CouldNotProbe):
            self._could_not_probe(error)
        else:
            self._report_internal_error(error)

    def _could_not_probe(self, error: CouldNotProbe) -> None:
        self.series.unknown += 1
        if error.reason == REASON_RUNTIME_UNAVAILABLE and not self._context.containers.available:
            self._record = threshold.put_on_hold(self._record)
        elif error.reason == REASON_INVALID_PROBE:
            self._publish(threshold.unknown(clean_message(str(error))))
        else:
            if error.reason in _REASONS_TO_REFRESH and self._record.obstacle is None:
                # The container may be gone or the runtime unavailable: a new list shows which.
                self._context.containers.refresh_soon()
            # Not `of_container`, whatever the reason: in the list the container runs. A container whose shim has died
            # may stay in the list as running; an obstacle of the container would then be cleared every time.
            self._publish_obstacle(clean_message(str(error)), of_container=False)

    def _report_internal_error(self, error: Exception) -> None:
        metrics.WORKER_ERRORS.inc()
        if not self._internal_error_logged:
            self._internal_error_logged = True
            self._log.error("probe could not run", exc_info=error)
        text = f"ProberError: {type(error).__name__}: {error}"
        self._publish_obstacle(clean_message(text), of_container=False)

    # The state.

    def _publish_obstacle(self, message: str, *, of_container: bool) -> None:
        self._publish(
            threshold.not_reached(
                self._record,
                message,
                of_container=of_container,
                at=self._loop.time(),
                thresholds=self._thresholds,
            )
        )
        self._arm_grace_timer()

    def _reset_grace_timer(self) -> None:
        if self._grace_timer is not None:
            self._grace_timer.cancel()
            self._on_grace_expired()

    def _arm_grace_timer(self) -> None:
        """Set the timer for the end of the grace period, when the obstacle makes the state Unknown."""
        obstacle = self._record.obstacle
        if obstacle is None or self._grace_timer is not None:
            return
        due = obstacle.since + self._thresholds.grace_seconds
        if due > self._loop.time():
            self._grace_timer = self._loop.call_at(due, self._on_grace_expired)

    def _on_grace_expired(self) -> None:
        self._grace_timer = None
        self._publish(threshold.time_passed(self._record, self._loop.time(), self._thresholds))
        self._arm_grace_timer()

    def _publish(self, record: Record, *, probed: bool = False) -> None:
        """Store `record`, and update the results if the state, its message or its probe time changed."""
        self._record = record
        if record.state is None:
            return
        key, at = self.entry.key, self._context.now()
        old = self._context.results.get(key)
        same_state = old is not None and old.state is record.state
        if (
            old is None
            or not same_state
            or old.message != record.message
            or (probed and threshold.settled(record, self._thresholds))
        ):
            transition_at = old.last_transition_at if old and same_state else at
            result = Result(
                record.state, record.message, self._container_id, self._hash, at, transition_at
            )
        elif probed or record.state is ProbeState.UNKNOWN:
            result = msgspec.structs.replace(old, last_probe_at=at)
        else:
            return
        self.series.state = record.state.value
        change = self._context.results.put(key, result)
        if change is Change.STATE and record.state is not ProbeState.UNKNOWN:
            self._context.on_transition(self.entry, result)
