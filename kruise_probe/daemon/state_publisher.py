"""The publisher of the state of one probe, with its grace timer.

Source: kubelet pkg/kubelet/prober/results/results_manager.go.
Differs: the result of a state is published in the form of the status.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime

import msgspec

from kruise_probe.api.node_pod_probe import ContainerProbeState
from kruise_probe.api.times import format_time
from kruise_probe.api.v1alpha1 import ProbeState
from kruise_probe.daemon import transitions
from kruise_probe.daemon.desired import DesiredProbe
from kruise_probe.daemon.metrics import ProbeSeries
from kruise_probe.daemon.reporter import Reporter
from kruise_probe.daemon.transitions import Outcome, Record


class StatePublisher:
    """The state of one probe: its record, its grace period and its published result. All methods are synchronous.

    Args:
        recorded: published before; it is the first state.

    Attributes:
        record: the newest record.
        container_id: of the container that is probed; empty before the first one.
        of_container: the published state is a result of this container.
    """

    def __init__(
        self,
        desired: DesiredProbe,
        *,
        reporter: Reporter,
        series: ProbeSeries,
        recorded: ContainerProbeState | None,
        now: Callable[[], datetime],
    ) -> None:
        self.record = Record()
        self.container_id = ""
        self.of_container = False
        self._reporter = reporter
        self._series = series
        self._now = now
        self._loop = asyncio.get_running_loop()
        self._grace_timer: asyncio.TimerHandle | None = None
        self._configure(desired)
        if recorded is not None:
            state = ProbeState(recorded.state)
            self.record = Record(Outcome(state, recorded.message or "", recorded.epoch))
            reporter.results[desired.key] = recorded
            series.state = recorded.state

    def _configure(self, desired: DesiredProbe) -> None:
        self._desired = desired
        self.thresholds = transitions.thresholds_of(desired.probe)
        self.probe_hash = desired.entry.hash

    def edit(self, desired: DesiredProbe, *, new_handler: bool) -> None:
        """Use this version of the probe from now on. Its thresholds and its grace period may have been reached already."""
        self._configure(desired)
        if new_handler:
            self.record = transitions.handler_replaced(self.record)
        self.publish(transitions.thresholds_changed(self.record, self.thresholds))

    def count(self, result: Outcome) -> None:
        """Count the result of an attempt."""
        self.publish(transitions.result_observed(self.record, result, self.thresholds), probed=True)

    def block(self, message: str) -> None:
        """Record why an attempt has no result; the probe becomes Unknown after the grace period."""
        now = self._loop.time()
        self.publish(transitions.attempt_blocked(self.record, message, by_container=False, at=now))

    def block_by_container(self, message: str, since: float) -> None:
        """Record why no container runs; at the latest since `since`."""
        record = transitions.end_hold(self.record, self._loop.time())
        self.publish(transitions.attempt_blocked(record, message, by_container=True, at=since))

    def put_on_hold(self, message: str, since: float) -> None:
        """Record why the container runtime cannot be asked; at the latest since `since`."""
        self.publish(transitions.put_on_hold(self.record, message, since))

    def container_runs(self) -> None:
        """Clear what kept results away while no container was known to run."""
        self.publish(
            transitions.container_runs(transitions.end_hold(self.record, self._loop.time()))
        )

    def stop(self) -> None:
        """Stop the grace timer."""
        if self._grace_timer is not None:
            self._grace_timer.cancel()
            self._grace_timer = None

    def publish(self, record: Record, *, probed: bool = False) -> None:
        """Use `record` from now on, and update the result if the state, its message or its probe time changed."""
        self.stop()
        if record.blocked is not None or record.hold is not None:
            now = self._loop.time()
            due = transitions.unknown_at(record, self.thresholds)
            record = transitions.time_passed(record, now, self.thresholds)
            if due > now:
                self._grace_timer = self._loop.call_at(due, self.publish, record)
        self.record = record
        shown = record.shown
        if shown is None:
            return
        key = self._desired.key
        at = format_time(self._now())
        since: str | None = at
        message = shown.message or None
        old = self._reporter.results.get(key)
        # Until the newest results confirm the state, time and hash stay those of the attempts that gave it.
        confirms = probed and shown is record.newest
        if old is not None and old.state == shown.state:
            since = old.last_transition_time
            repeats = old.message == message and old.epoch == shown.epoch
            if repeats and not confirms:
                if shown.state is ProbeState.UNKNOWN:
                    self._reporter.results[key] = msgspec.structs.replace(old, last_probe_time=at)
                return
        self._series.state = shown.state
        result = ContainerProbeState(
            name=self._desired.entry.name,
            state=shown.state,
            last_probe_time=at,
            last_transition_time=since,
            message=message,
            probe_hash=self.probe_hash,
            epoch=shown.epoch,
        )
        is_first = confirms and not self.of_container
        self.of_container |= confirms
        self._reporter.put(self._desired, result, is_first_of_container=is_first)
