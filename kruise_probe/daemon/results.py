"""The published results: `Results` has those of all probes of this node, `StatePublisher` updates that of one probe.

Source: kubelet pkg/kubelet/prober/results/results_manager.go; worker.go (doProbe).
Differs: keyed by pod uid, container and probe. Kruise's key is the container id, so two probes of one container
overwrite each other. Changes of the state, changes of the message and repetitions are distinguished.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime
from enum import IntEnum

import msgspec

from kruise_probe.api.keys import ProbeKey
from kruise_probe.api.times import format_time
from kruise_probe.api.v1alpha1 import ContainerProbeState, ProbeState
from kruise_probe.daemon import threshold
from kruise_probe.daemon.diff import DesiredProbe
from kruise_probe.daemon.metrics import ProbeSeries
from kruise_probe.daemon.threshold import Record


class ResultChange(IntEnum):
    """What changed in a result; the greater, the more urgent.

    STATE is also the first result of an edited handler: the manager waits for it to apply the policies.
    """

    MESSAGE = 1
    STATE = 2


class Results:
    """Results by key, as the status has them.

    Both callbacks are synchronous; set them before the first result.

    Attributes:
        on_change: called after every change.
        on_transition: called with a probe and its new result when the state changed.
    """

    def __init__(self) -> None:
        self.newest: dict[ProbeKey, ContainerProbeState] = {}
        self.on_change: Callable[[ResultChange], None] = lambda _: None
        self.on_transition: Callable[[DesiredProbe, ContainerProbeState], None] = lambda *_: None

    def put(self, key: ProbeKey, result: ContainerProbeState) -> None:
        """Store a new result, and report what changed."""
        old = self.newest.get(key)
        self.newest[key] = result
        if old is None or old.state != result.state or old.probe_hash != result.probe_hash:
            self.on_change(ResultChange.STATE)
        elif old.message != result.message or old.container_id != result.container_id:
            self.on_change(ResultChange.MESSAGE)

    def remove(self, key: ProbeKey) -> None:
        """Remove the result of a probe that no longer runs."""
        if self.newest.pop(key, None) is not None:
            self.on_change(ResultChange.MESSAGE)


class StatePublisher:
    """The state of one probe: counts results, waits for the grace period, publishes. All methods are synchronous.

    Args:
        recorded: published before; it is the first state.

    Attributes:
        record: the newest record; see `threshold`.
        container_id: of the container that is probed; empty before the first one.
    """

    def __init__(
        self,
        desired: DesiredProbe,
        *,
        results: Results,
        series: ProbeSeries,
        recorded: ContainerProbeState | None,
        now: Callable[[], datetime],
    ) -> None:
        self.record = Record()
        self.container_id = ""
        self._results = results
        self._series = series
        self._now = now
        self._loop = asyncio.get_running_loop()
        self._grace_timer: asyncio.TimerHandle | None = None
        self.configure(desired)
        if recorded is not None:
            self.record = threshold.restored(ProbeState(recorded.state), recorded.message or "")
            results.newest[desired.key] = recorded
            series.state = recorded.state

    def configure(self, desired: DesiredProbe) -> None:
        """Use this version of the probe from now on."""
        self._desired = desired
        self.thresholds = threshold.thresholds_of(desired.probe)
        self.probe_hash = desired.entry.hash

    def observe(self, state: ProbeState, message: str) -> None:
        """Count the result of an attempt."""
        record = threshold.result_observed(self.record, state, message, self.thresholds)
        self._publish(record, probed=True)

    def become_unknown(self, message: str) -> None:
        """Publish Unknown at once."""
        self._publish(threshold.unknown(message))

    def put_on_hold(self) -> None:
        """Clear the blocking reason while the runtime is unavailable."""
        self.record = threshold.put_on_hold(self.record)

    def unblock_container(self) -> None:
        """Clear a blocking reason of the container: it runs."""
        self.record = threshold.container_runs(self.record)

    def change_container(self, container_id: str, *, initial_delay: bool) -> None:
        """Count from zero for a new container; Unknown during its initial delay."""
        self.container_id = container_id
        self._publish(threshold.container_changed(self.record, initial_delay=initial_delay))

    def restart_count(self) -> None:
        """Count from zero after an edit of the handler."""
        self.record = threshold.handler_changed(self.record)

    def apply_new_thresholds(self) -> None:
        self._publish(threshold.thresholds_changed(self.record, self.thresholds))

    def block(self, message: str, *, by_container: bool) -> None:
        """Record why there is no result; the probe becomes Unknown after the grace period."""
        self._publish(
            threshold.attempt_blocked(
                self.record,
                message,
                by_container=by_container,
                at=self._loop.time(),
                thresholds=self.thresholds,
            )
        )
        self._start_grace_timer()

    def apply_new_grace_period(self) -> None:
        """Restart a running grace timer after an edit; the new period may have ended already."""
        if self._grace_timer is not None:
            self._on_grace_expired()

    def stop_grace_timer(self) -> None:
        if self._grace_timer is not None:
            self._grace_timer.cancel()
        self._grace_timer = None

    def _start_grace_timer(self) -> None:
        self.stop_grace_timer()
        if (blocked := self.record.blocked) is not None:
            due = blocked.since + self.thresholds.grace_seconds
            if due > self._loop.time():
                self._grace_timer = self._loop.call_at(due, self._on_grace_expired)

    def _on_grace_expired(self) -> None:
        self._publish(threshold.time_passed(self.record, self._loop.time(), self.thresholds))
        self._start_grace_timer()

    def _publish(self, record: Record, *, probed: bool = False) -> None:
        """Store `record`, and update the results if the state, its message or its probe time changed."""
        self.record = record
        if record.state is None:
            return
        key, at = self._desired.key, format_time(self._now())
        old, message = self._results.newest.get(key), record.message or None
        since = old.last_transition_time if old and old.state == record.state else at
        result = ContainerProbeState(
            self._desired.entry.name, record.state, at, since, message,
            self.container_id or None, self.probe_hash,
        )  # fmt: skip
        # Until the newest results confirm the state, container and hash stay those of the attempts that gave it.
        repeated = old and old.state == record.state and old.message == message
        if old and repeated and not (probed and threshold.is_confirmed(record, self.thresholds)):
            if probed or record.state is ProbeState.UNKNOWN:
                self._results.newest[key] = msgspec.structs.replace(old, last_probe_time=at)
            return
        self._results.put(key, result)
        if old is None or old.state != record.state:
            self._series.state = record.state
            self._results.on_transition(self._desired, result)
