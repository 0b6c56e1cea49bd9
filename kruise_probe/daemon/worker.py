"""One probe of one container: when it is asked, what its verdicts amount to, what is published of it.

The decisions are `schedule`'s, `aim`'s and `threshold`'s. A worker at rest is one timer, and a task only while its
probe is under way; so a thousand of them cost what their probes cost.

Source: kubelet pkg/kubelet/prober/worker.go.
Differs: no loop of its own; edits apply field by field (KEP-6318); a container that does not run, or was not
created, is waited for without attempts; a hanging exec is asked less often.
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

_REASONS_TO_LOOK = frozenset(
    {REASON_CONTAINER_NOT_CREATED, REASON_CONTAINER_NOT_RUNNING, REASON_RUNTIME_UNAVAILABLE}
)


def _nothing() -> None: ...


class WorkerContext(NamedTuple):
    """What all workers of a daemon share.

    Attributes:
        anchor: the instant from which ticks are counted.
        spawn: starts a probe; its owner cancels it at the end.
        standstill: when this process could not hear what probes were answered.
        on_transition: called with the entry and its new result, Succeeded or Failed.
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
    """Runs one entry until halted. Never two probes of it at once.

    Args:
        recorded: what was published of the entry before: read back, or kept from before the object went.
        from_start: the entry stood in the spec when this daemon started.
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
        self._probed = False
        self._timeouts_in_a_row = 0
        self._broken = False
        self._unsubscribe: Callable[[], None] = _nothing

        self._attempts = Attempts(
            context.spawn,
            context.standstill,
            on_outcome=self._judge,
            on_failure=self._not_probed,
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

    # What others do to a worker; all of it is synchronous.

    def start(self) -> None:
        """Takes over what was read back, and waits for its container."""
        key = self.entry.key
        if self._recorded is not None:
            self._context.results.restore(key, self._recorded)
            self.series.state = self._recorded.state.value
        self._unsubscribe = self._context.containers.subscribe(
            key.pod_uid, key.container, self._look
        )
        if self._refusal:
            self._publish(threshold.unknown(self._refusal))
        else:
            self._sync_container()

    def _look(self) -> None:
        if self._refusal:
            return
        try:
            self._sync_container()
        except Exception as error:  # noqa: BLE001 - one bad probe never stops another
            self._report_broken(error)

    def edit(self, entry: Entry) -> None:
        """Goes on with another version of the entry; each field takes effect at once, in its own way."""
        old, self.entry = self.entry, entry
        edit = edit_of(old.probe, entry.probe)
        ask_again = (
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
        self._rearm_grace()
        if not self._container_id:
            self._sync_container()
        elif ask_again or edit.timing:
            self._restart_timer(ask_again=ask_again)

    def halt(self) -> None:
        """Ends at once; the results are left as they are."""
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

    def _restart_timer(self, *, ask_again: bool) -> None:
        due = self._first_due()
        if ask_again or not self._probed or due > self._loop.time():
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
        """The container, if it runs and was known before; takes note of a new one, or of why there is none."""
        aim = aim_at(self._context.containers, self.entry)
        if aim is None:
            self._record = threshold.put_on_hold(self._record)
            return None
        if isinstance(aim, Missing):
            self._not_reached(str(aim), of_container=True)
            return None
        if aim.id != self._container_id:
            self._adopt(aim)
            return None
        self._record = threshold.container_runs(self._record)
        return aim

    def _adopt(self, view: ContainerView) -> None:
        """Another container takes over: its initial delay, then the phase."""
        self._discard_attempt()
        self._started_at = view.started_at.timestamp() if view.started_at else None
        recorded, self._recorded = self._recorded, None
        match = recorded and readback_match(
            recorded, container_id=view.id, started_at=self._started_at, probe_hash=self._hash
        )
        replaced = bool(self._container_id) or match is ReadbackMatch.OTHER
        ran_before = not self._container_id and self._ran_before_the_daemon()
        self._container_id = view.id
        self._probed = False
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
            self._report_broken(error)
            return True
        if view is not None and self._prober is not None:
            self._probed = True
            target = target_of(view, self.entry, self._context.host_addresses)
            self._attempts.begin(self._prober, target)
        return True

    def _report_queued(self) -> None:
        """An attempt that waits too long for its place makes the state Unknown; it goes on waiting."""
        obstacle, reported = self._record.obstacle, self._record.message
        if self._prober is None or reported.startswith(REASON_EXEC_QUEUED):
            return
        if not self._context.containers.available or (obstacle and obstacle.of_container):
            return  # Something else keeps it from running.
        if (queued := self._prober.queued_too_long()) is not None:
            self._publish(threshold.unknown(str(queued)))

    def _judge(self, outcome: Outcome, seconds: float) -> None:
        if outcome.verdict is Verdict.SUCCESS:
            verdict = ProbeState.SUCCEEDED
            self.series.succeeded(seconds)
        else:
            verdict = ProbeState.FAILED
            self.series.failed += 1
        hung = outcome.timed_out and self.entry.probe.exec is not None
        self._timeouts_in_a_row = self._timeouts_in_a_row + 1 if hung else 0
        factor = schedule.stretch(self._timeouts_in_a_row, self._thresholds.failure)
        self._ticker.stretch_to(factor)
        self._broken = False
        message = outcome.message if factor == 1 else self._stuck(outcome.message, factor)
        self._publish(
            threshold.verdict_reached(self._record, verdict, message, self._thresholds),
            probed=True,
        )

    def _stuck(self, message: str, factor: int) -> str:
        """What somebody can do about commands that pile up in a container; a node agent can do nothing."""
        every = factor * self._ticker.timing.period_seconds
        return clean_message(
            f"{message} (ExecStuck: each time, so it is asked every {every:g} s only; end what the command starts, or "
            "give the container an init)"
        )

    def _not_probed(self, error: Exception) -> None:
        if isinstance(error, CouldNotProbe):
            self._could_not_probe(error)
        else:
            self._report_broken(error)

    def _could_not_probe(self, error: CouldNotProbe) -> None:
        self.series.unknown += 1
        if error.reason == REASON_RUNTIME_UNAVAILABLE and not self._context.containers.available:
            self._record = threshold.put_on_hold(self._record)
        elif error.reason == REASON_INVALID_PROBE:
            self._publish(threshold.unknown(clean_message(str(error))))
        else:
            if error.reason in _REASONS_TO_LOOK and self._record.obstacle is None:
                # Its container may be gone, or the runtime itself: a list says so now.
                self._context.containers.refresh_soon()
            # Not one of the container, whatever the reason: it runs by the list, which may go on saying so of one
            # whose shim has died.
            self._not_reached(clean_message(str(error)), of_container=False)

    def _report_broken(self, error: Exception) -> None:
        metrics.WORKER_ERRORS.inc()
        if not self._broken:
            self._broken = True
            self._log.error("probe could not run", exc_info=error)
        text = f"ProberError: {type(error).__name__}: {error}"
        self._not_reached(clean_message(text), of_container=False)

    # What follows from it.

    def _not_reached(self, message: str, *, of_container: bool) -> None:
        self._publish(
            threshold.not_reached(
                self._record,
                message,
                of_container=of_container,
                at=self._loop.time(),
                thresholds=self._thresholds,
            )
        )
        self._watch_grace()

    def _rearm_grace(self) -> None:
        if self._grace_timer is not None:
            self._grace_timer.cancel()
            self._grace_is_over()

    def _watch_grace(self) -> None:
        """Keeps a timer for the moment at which the obstacle makes the state Unknown."""
        obstacle = self._record.obstacle
        if obstacle is None or self._grace_timer is not None:
            return
        due = obstacle.since + self._thresholds.grace_seconds
        if due > self._loop.time():
            self._grace_timer = self._loop.call_at(due, self._grace_is_over)

    def _grace_is_over(self) -> None:
        self._grace_timer = None
        self._publish(threshold.time_passed(self._record, self._loop.time(), self._thresholds))
        self._watch_grace()

    def _publish(self, record: Record, *, probed: bool = False) -> None:
        """Remembers `record`, and puts into the results what follows from it."""
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
