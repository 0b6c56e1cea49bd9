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
            message = recorded.message or ""
            shown = Outcome(state, message, recorded.epoch)
            self.record = Record(shown)
            reporter.results[desired.key] = recorded
            series.state = recorded.state

    def _configure(self, desired: DesiredProbe) -> None:
        self._desired = desired
        self.thresholds = transitions.thresholds_of(desired.probe)
        self.probe_hash = desired.entry.hash

    def edit(self, desired: DesiredProbe, *, new_handler: bool) -> None:
        """Use this version of the probe from now on. Its thresholds and its grace period may have been reached already."""
        self._configure(desired)
        record = self.record
        if new_handler:
            record = transitions.handler_replaced(record)
        record = transitions.thresholds_changed(record, self.thresholds)
        self.publish(record)

    def count(self, result: Outcome) -> None:
        """Count the result of an attempt."""
        record = transitions.result_observed(self.record, result, self.thresholds)
        self.publish(record, probed=True)

    def block(self, message: str) -> None:
        """Record why an attempt has no result; the probe becomes Unknown after the grace period."""
        now = self._loop.time()
        record = transitions.attempt_blocked(self.record, message, by_container=False, at=now)
        self.publish(record)

    def block_by_container(self, message: str, since: float) -> None:
        """Record why no container runs; at the latest since `since`."""
        now = self._loop.time()
        record = transitions.end_hold(self.record, now)
        record = transitions.attempt_blocked(record, message, by_container=True, at=since)
        self.publish(record)

    def put_on_hold(self, message: str, since: float) -> None:
        """Record why the container runtime cannot be asked; at the latest since `since`."""
        record = transitions.put_on_hold(self.record, message, since)
        self.publish(record)

    def container_runs(self) -> None:
        """Clear what kept results away while no container was known to run."""
        now = self._loop.time()
        record = transitions.end_hold(self.record, now)
        record = transitions.container_runs(record)
        self.publish(record)

    def stop(self) -> None:
        """Stop the grace timer."""
        timer = self._grace_timer
        if timer is not None:
            timer.cancel()
            self._grace_timer = None

    def publish(self, record: Record, *, probed: bool = False) -> None:
        """Use `record` from now on, and renew the result; the reporter decides what of it is written, and when."""
        self.stop()
        if record.blocked is not None or record.hold is not None:
            now = self._loop.time()
            due = transitions.unknown_at(record, self.thresholds)
            record = transitions.time_passed(record, now, self.thresholds)
            if due > now:
                self._grace_timer = self._loop.call_at(due, self.publish, record)
        self.record = record
        shown = record.shown
        if shown is not None:
            confirms = probed and shown is record.newest
            self._renew_result(shown, confirms=confirms)

    def _renew_result(self, shown: Outcome, *, confirms: bool) -> None:
        """Publish a state. `confirms`: the newest attempts gave it.

        Otherwise time and hash of an equal result stay those of the attempts that gave it. Only the time of Unknown is
        always the newest.
        """
        key = self._desired.key
        at = format_time(self._now())
        since: str | None = at
        message = shown.message or None
        old = self._reporter.results.get(key)
        if old is not None and old.state == shown.state:
            since = old.last_transition_time
            is_equal = old.message == message and old.epoch == shown.epoch
            if is_equal and not confirms:
                if shown.state is ProbeState.UNKNOWN:
                    newer = msgspec.structs.replace(old, last_probe_time=at)
                    self._reporter.results[key] = newer
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
