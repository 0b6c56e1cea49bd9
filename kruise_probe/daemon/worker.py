"""The worker of one probe of one container: runs attempts on schedule and publishes the state.

`schedule` decides when to probe, `desired` where, and `transitions` the state. An idle worker holds one timer. It has
a task only while an attempt waits.

Source: kubelet pkg/kubelet/prober/worker.go (run, doProbe).
Differs: no loop per worker. Edits apply field by field (KEP-6318). There are no attempts while the container does not
run or does not exist. A late tick never moves the following ones. An exec probe that hangs runs less often.
"""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any, NamedTuple

import structlog

from kruise_probe.api.v1alpha1 import ContainerProbe, ProbeState
from kruise_probe.daemon import metrics, schedule, transitions
from kruise_probe.daemon.adoption import NO_HANDOVER, Handover, adoption
from kruise_probe.daemon.cri.containers import ContainerView, ContainerWatcher
from kruise_probe.daemon.cri.runtime import ContainerState
from kruise_probe.daemon.desired import (
    DesiredProbe,
    NodeAddresses,
    invalid_reason,
    target_of,
)
from kruise_probe.daemon.metrics import ProbeSeries
from kruise_probe.daemon.places import LONG_SECONDS, Place, Places, Tenant
from kruise_probe.daemon.probers.exec import is_stuck, stuck_message
from kruise_probe.daemon.probers.prober import (
    BytesQueued,
    CouldNotProbe,
    Prober,
    ProbeResult,
    Reason,
    Target,
)
from kruise_probe.daemon.reporter import Reporter
from kruise_probe.daemon.schedule import StartTime, Ticker
from kruise_probe.daemon.state_publisher import StatePublisher
from kruise_probe.daemon.transitions import Outcome

_REASONS_TO_LIST = frozenset(
    {Reason.CONTAINER_NOT_CREATED, Reason.CONTAINER_NOT_RUNNING, Reason.RUNTIME_UNAVAILABLE}
)


class WorkerContext(NamedTuple):
    """Dependencies that all workers of a daemon share.

    Attributes:
        execs, sockets: the places of exec probes, and of all others.
        stalled_since: whether this process has stalled since a loop time, and so read responses too late.
        now: the wall clock.
    """

    containers: ContainerWatcher
    node_addresses: NodeAddresses
    prober_factory: Callable[[ContainerProbe], Prober]
    execs: Places
    sockets: Places
    stalled_since: Callable[[float], bool]
    now: Callable[[], datetime]


class Worker:
    """Runs one probe until halted. Never two attempts of it at once.

    Args:
        daemon_start: ticks are computed from it.
        spawn: starts the task of an attempt; its owner cancels it at the end.
        handover: what is known from the time before it.
    """

    def __init__(
        self,
        desired: DesiredProbe,
        context: WorkerContext,
        reporter: Reporter,
        *,
        daemon_start: StartTime,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        handover: Handover,
    ) -> None:
        self.desired = desired
        self.series = ProbeSeries(desired.key, desired.pod)
        self._context = context
        self._daemon_start = daemon_start
        self._spawn = spawn
        self._handover = handover
        self._loop = asyncio.get_running_loop()
        self._log = structlog.get_logger().bind(
            pod=str(desired.pod), container=desired.key.container, probe=str(desired.key.probe)
        )
        self._ticker = Ticker(
            daemon_start, schedule.timing_of(desired.key, desired.probe), self._on_tick
        )
        self._state = StatePublisher(
            desired,
            reporter=reporter,
            series=self.series,
            recorded=handover.result,
            now=context.now,
        )
        self._configure()
        self._tenant = Tenant(desired.pod.namespace, desired.key.pod_uid)

        self._container: ContainerView | None = None
        self._started_at: float | None = None
        self._unsubscribe: Callable[[], None] | None = None

        self._attempted = False
        self._attempt: asyncio.Task[None] | None = None
        self._place: Place | None = None
        self._late_tick_at: float | None = None
        self._timeouts_in_a_row = 0
        self._timeout_ignored = False
        self._internal_error_logged = False

    def _configure(self) -> None:
        entry = self.desired.entry
        self.series.type = entry.probe.handler_type
        self._is_exec = entry.probe.exec is not None
        self._places = self._context.sockets
        if self._is_exec:
            self._places = self._context.execs
        self._long = entry.probe.effective_timeout_seconds > LONG_SECONDS
        self._invalid_reason = invalid_reason(entry)
        self._prober = None
        if not self._invalid_reason:
            self._prober = self._context.prober_factory(entry)

    # Calls of the supervisor and of the containers; all are synchronous.

    def start(self) -> None:
        """Subscribe to the container."""
        key = self.desired.key
        self._unsubscribe = self._context.containers.subscribe(
            key.pod_uid, key.container, self._on_container_change
        )
        self._sync_container()

    def edit(self, desired: DesiredProbe) -> None:
        """Apply an edit of the probe; every field takes effect at once.

        Effective values are compared: setting a field to its default is no edit. Results of an old handler do not
        count; those with an old timeout do.
        """
        old = self.desired
        self.desired = desired
        timing = schedule.timing_of(desired.key, desired.probe)
        new_timing = timing != self._ticker.timing or (
            old.probe.effective_initial_delay_seconds
            != desired.probe.effective_initial_delay_seconds
        )
        new_handler = old.entry.attempt != desired.entry.attempt
        new_attempt = new_handler or (
            old.probe.effective_timeout_seconds != desired.probe.effective_timeout_seconds
        )
        probe_again = new_attempt or (
            old.ip != desired.ip and self._state.record.blocked is not None
        )
        self._ticker.timing = timing
        if new_attempt:
            self._configure()
            self._discard_attempt()
        self._state.edit(desired, new_handler=new_handler)
        has_run = bool(self._state.container_id)
        self._sync_container()
        if self._invalid_reason:
            self._stop_timers()
        elif has_run and (probe_again or new_timing):
            self._restart_timer(probe_again=probe_again)

    def probe_at_once(self) -> None:
        """Run now instead of at the next tick; a container within its initial delay waits for its end."""
        if self._state.container_id and not self._invalid_reason:
            self._restart_timer(probe_again=True)

    def halt(self) -> None:
        """Stop at once; keep the results. An attempt in flight gives none."""
        if self._unsubscribe is not None:
            self._unsubscribe()
        self._stop_timers()
        self._discard_attempt()
        self._prober = None

    def _on_container_change(self) -> None:
        try:
            self._sync_container()
        except Exception as error:  # noqa: BLE001 - one bad probe never stops another
            self._record_error(error)

    # A tick.

    def _on_tick(self) -> None:
        """Start the next attempt, unless the previous one is in flight or no container runs (kubelet's doProbe)."""
        if self._attempt is not None:
            if self._late_tick_at is not None:
                metrics.TICKS_MISSED.inc()
            self._late_tick_at = self._loop.time()
            self._report_queued()
            return
        if self._container is None:
            self._on_container_change()  # Why none runs may have changed.
            return
        if self._prober is None:
            return
        self._attempted = True
        try:
            if self._is_exec:
                target = Target("", self._container.id)
            else:
                target = target_of(self._container, self.desired, self._context.node_addresses)
                began = self._loop.time()
                if (result := self._prober.run_now(target)) is not None:
                    self._record_result(result, began)
                    return
            self._attempt = self._spawn(self._run(self._prober, target))
            # Not a `finally` in the coroutine: a task that is cancelled before its first step never enters it.
            self._attempt.add_done_callback(self._end_attempt)
        except Exception as error:  # noqa: BLE001 - one bad probe never stops another
            self._record_error(error)

    async def _run(self, prober: Prober, target: Target) -> None:
        # An edit of the handler replaces the places while this attempt ends.
        places = self._places
        self._place = place = places.request(self._tenant, long=self._long)
        try:
            if not place.granted:
                await place.wait()
            began = self._loop.time()
            try:
                result = await prober.run(target, place)
            except BytesQueued:
                places.request_again(place)
                if not place.granted:
                    await place.wait()
                began = self._loop.time()
                result = await prober.run(target, place)
            if self._counts(prober, target):
                self._record_result(result, began)
        except Exception as error:  # noqa: BLE001 - one bad probe never stops another
            if self._counts(prober, target):
                self._record_error(error)
        finally:
            places.release(place)

    def _counts(self, prober: Prober, target: Target) -> bool:
        """Whether an attempt that ends now has a result: it is of the current probe, and in the newest list its container runs."""
        container = self._container
        if container is None or prober is not self._prober:
            return False
        return container.id == target.container_id

    def _end_attempt(self, _: asyncio.Task[None]) -> None:
        """Serve the tick that came during the attempt, or count it as missed."""
        self._attempt = self._place = None
        late_tick_at = self._late_tick_at
        self._late_tick_at = None
        if late_tick_at is None:
            return
        if self._ticker.runs_late(late_tick_at):
            self._on_tick()
        else:
            metrics.TICKS_MISSED.inc()

    def _discard_attempt(self) -> None:
        """Cancel the attempt in flight, and drop its result and the tick that came during it."""
        self._count_timeouts(0)
        self._late_tick_at = None
        self._place = None
        if self._attempt is not None:
            self._attempt.cancel()

    def _restart_timer(self, *, probe_again: bool) -> None:
        due = self._first_due()
        in_delay = due > self._loop.time()
        if probe_again or in_delay or not self._attempted:
            self._ticker.tick_at(due)
        else:
            self._ticker.tick_on_phase()

    def _first_due(self) -> float:
        """Loop time of the end of the initial delay, or now. A start in the future (clock skew) counts as now."""
        left: float = self.desired.probe.effective_initial_delay_seconds
        started_at = self._started_at
        if started_at is not None:
            now = self._context.now().timestamp()
            age = max(now - started_at, 0.0)
            left -= age
        return self._loop.time() + max(left, 0.0)

    def _stop_timers(self) -> None:
        self._ticker.stop()
        self._state.stop()

    # The container.

    def _sync_container(self) -> None:
        """Adopt a new container, or publish why none runs or why the probe cannot."""
        self._container = None
        key = self.desired.key
        containers = self._context.containers
        if self._invalid_reason:
            self._state.publish(transitions.unknown(self._invalid_reason))
            return
        # What was missed before this worker had a container counts too.
        since = min(self._loop.time(), self._handover.watched_until)
        if containers.problem:
            problem = f"{Reason.RUNTIME_UNAVAILABLE}: {containers.problem}"
            self._state.put_on_hold(problem, since)
            return
        view = containers.find(key.pod_uid, key.container)
        if view is None:
            return
        if view.state is ContainerState.MISSING:
            problem = (
                f"{Reason.CONTAINER_NOT_CREATED}: the runtime has no container {key.container} of pod "
                f"{self.desired.pod}; the pod's events show why"
            )
            self._state.block_by_container(problem, since)
        elif view.state is not ContainerState.RUNNING:
            why = ""
            if view.problem:
                why = f": {view.problem}"
            if view.exit_code is not None:
                why = f", exit code {view.exit_code}"
            text = f"container {key.container} is {view.state.value}{why}"
            problem = f"{Reason.CONTAINER_NOT_RUNNING}: {text}"
            self._state.block_by_container(problem, since)
        else:
            self._container = view
            self._state.container_runs()
            if view.id != self._state.container_id:
                self._adopt(view)

    def _adopt(self, view: ContainerView) -> None:
        """Switch to a new container: first its initial delay, then ticks on phase."""
        self._discard_attempt()
        self._attempted = False
        self._started_at = None
        if view.started_at is not None:
            self._started_at = view.started_at.timestamp()
        decided = adoption(
            self._started_at,
            self._handover,
            had_container=bool(self._state.container_id),
            probe_hash=self._state.probe_hash,
            timing=self._ticker.timing,
            daemon_start=self._daemon_start,
            delay_ends=self._first_due(),
            grace_seconds=self._state.thresholds.grace_seconds,
            loop_now=self._loop.time(),
            wall_now=self._context.now().timestamp(),
        )
        result = self._handover.result
        self._handover = NO_HANDOVER
        if self._is_exec and decided.due is None and result is not None and is_stuck(result):
            # Otherwise the first timeouts of this daemon have no ExecStuck, and the manager counts them as a verdict.
            timeouts = schedule.timeouts_of_a_stuck_probe(self._state.thresholds.failure)
            self._count_timeouts(timeouts)
        self._state.container_id = view.id
        self._state.of_container = decided.same
        record = transitions.container_replaced(self._state.record, keep_state=decided.keep_state)
        self._state.publish(record)
        if decided.due is None:
            self._ticker.tick_on_phase()
        else:
            self._ticker.tick_at(decided.due)

    # The result of an attempt.

    def _record_result(self, result: ProbeResult, began: float) -> None:
        # A timeout during a stall of the daemon is ignored, but never twice in a row: a slow node would hide failures.
        self._timeout_ignored = (
            result.timed_out and not self._timeout_ignored and self._context.stalled_since(began)
        )
        if self._timeout_ignored:
            return
        self._internal_error_logged = False
        message = result.message
        if self._is_exec:
            in_a_row = 0
            if result.timed_out:
                in_a_row = self._timeouts_in_a_row + 1
            factor = self._count_timeouts(in_a_row)
            if factor > 1:
                period = factor * self._ticker.timing.period_seconds
                message = stuck_message(message, period)
        if result.succeeded:
            self.series.succeeded(self._loop.time() - began)
            self._state.count(Outcome(ProbeState.SUCCEEDED, message, result.epoch))
        else:
            self.series.failed += 1
            self._state.count(Outcome(ProbeState.FAILED, message))

    def _count_timeouts(self, in_a_row: int) -> int:
        """Set how many commands in a row have timed out. Returns the factor for the period."""
        if in_a_row == self._timeouts_in_a_row == 0:
            return 1
        self._timeouts_in_a_row = in_a_row
        factor = schedule.stretch(in_a_row, self._state.thresholds.failure)
        self._ticker.stretch_to(factor)
        return factor

    def _record_error(self, error: Exception) -> None:
        """Record why an attempt has no result."""
        if not isinstance(error, CouldNotProbe):
            metrics.WORKER_ERRORS.inc()
            if not self._internal_error_logged:
                self._internal_error_logged = True
                self._log.error("probe could not run", exc_info=error)
            self._state.block(f"ProberError: {error!r}; report this defect of kruise-probe")
            return
        reason = error.reason
        self.series.unknown += 1
        if reason in (Reason.EXEC_IMPOSSIBLE, Reason.NO_VALUE):
            # A program that cannot start or that has ended did not hang.
            self._count_timeouts(0)
        message = str(error)
        if reason == Reason.INVALID_PROBE:
            self._state.publish(transitions.unknown(message))
            return
        is_first = self._state.record.blocked is None
        if is_first and reason in _REASONS_TO_LIST:
            # The container may be gone or the runtime unavailable: a new list shows which.
            self._context.containers.request_list()
        # A block of the attempt, whatever the reason: in the list the container runs. A container whose shim has died
        # may stay in the list as running, which would clear a block by the container every time.
        self._state.block(message)

    def _report_queued(self) -> None:
        """Publish Unknown if the attempt in flight has waited too long for a place; it keeps waiting."""
        place = self._place
        if place is None or place.granted or place.reported:
            return
        if self._container is None:
            return  # Something other than the queue blocks it.
        period = self.desired.probe.effective_period_seconds
        longest = schedule.longest_wait(period)
        waited = self._loop.time() - place.requested_at
        if waited < longest:
            return
        place.reported = True
        message = f"{self._places.reason}: {self._places.describe(place)}"
        self._state.publish(transitions.unknown(message))
