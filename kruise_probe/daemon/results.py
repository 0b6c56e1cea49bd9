"""The published results: `Results` has those of all probes of this node, `StatePublisher` updates that of one probe.

Source: kubelet pkg/kubelet/prober/results/results_manager.go; worker.go (doProbe).
Differs: keyed by pod uid, container and probe. Kruise's key is the container id, so two probes of one container
overwrite each other. Changes of the state, changes of the message and repetitions are distinguished.
"""

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime
from enum import IntEnum

import msgspec

from kruise_probe.api.keys import ProbeKey
from kruise_probe.api.v1alpha1 import ProbeState
from kruise_probe.daemon import threshold
from kruise_probe.daemon.diff import DesiredProbe
from kruise_probe.daemon.metrics import ProbeSeries
from kruise_probe.daemon.threshold import Record


class ResultChange(IntEnum):
    """What changed in a result; the greater, the more urgent.

    STATE is also the first result of an edited handler: the manager waits for it to apply the policies.
    """

    NOTHING = 0
    MESSAGE = 1
    STATE = 2


class PublishedResult(msgspec.Struct, frozen=True, gc=False):
    """The published result of one probe.

    Attributes:
        container_id: the container that was probed; empty when the state is not of a container.
        probe_hash: hash of the probe that gave the state; empty when unknown.
        last_probe_at: when the newest attempt ended, or when the state became Unknown.
        last_transition_at: when `state` last changed.
    """

    state: ProbeState
    message: str
    container_id: str
    probe_hash: str
    last_probe_at: datetime | None
    last_transition_at: datetime | None


def next_result(
    old: PublishedResult | None, new: PublishedResult, *, probed: bool, confirmed: bool
) -> PublishedResult | None:
    """The result to publish after `old`; None if nothing changes.

    `new` has the transition time of `old`, unless the state has changed.
    `probed`: an attempt has ended with a result. `confirmed`: the newest results confirm the state. Until then,
    container and probe hash stay those of the attempts that gave the state.
    """
    if old is None or old.state is not new.state or confirmed or old.message != new.message:
        return new
    if probed or new.state is ProbeState.UNKNOWN:
        return msgspec.structs.replace(old, last_probe_at=new.last_probe_at)
    return None


class Results:
    """Results by key. `newest` is a live view, not a copy.

    `on_change` is called after every change but NOTHING, synchronously; set it before the first `put`.
    """

    def __init__(self) -> None:
        self._results: dict[ProbeKey, PublishedResult] = {}
        self.on_change: Callable[[ResultChange], None] = _ignore

    @property
    def newest(self) -> Mapping[ProbeKey, PublishedResult]:
        return self._results

    def get(self, key: ProbeKey) -> PublishedResult | None:
        return self._results.get(key)

    def restore(self, key: ProbeKey, result: PublishedResult) -> None:
        """Set a result that was read back; does not call `on_change`."""
        self._results[key] = result

    def put(self, key: ProbeKey, result: PublishedResult) -> bool:
        """Store a new result. Returns whether the state changed."""
        old = self._results.get(key)
        self._results[key] = result
        change = _change(old, result)
        if change:
            self.on_change(change)
        return old is None or old.state is not result.state

    def remove(self, key: ProbeKey) -> None:
        """Remove the result of a probe that no longer runs."""
        if self._results.pop(key, None) is not None:
            self.on_change(ResultChange.MESSAGE)


def _change(old: PublishedResult | None, new: PublishedResult) -> ResultChange:
    if old is None or (old.state, old.probe_hash) != (new.state, new.probe_hash):
        return ResultChange.STATE
    if old.message == new.message and old.container_id == new.container_id:
        return ResultChange.NOTHING
    return ResultChange.MESSAGE


def _ignore(_: ResultChange) -> None: ...


class StatePublisher:
    """Owns the record of one probe and the timer of its grace period. All methods are synchronous.

    Args:
        recorded: published before; it is the first state.
        on_transition: called with the probe and its new result when the state changed.

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
        recorded: PublishedResult | None,
        on_transition: Callable[[DesiredProbe, PublishedResult], None],
        now: Callable[[], datetime],
    ) -> None:
        self.record = threshold.restored(recorded.state, recorded.message) if recorded else Record()
        self.container_id = ""
        self._results = results
        self._series = series
        self._recorded = recorded
        self._on_transition = on_transition
        self._now = now
        self._loop = asyncio.get_running_loop()
        self._grace_timer: asyncio.TimerHandle | None = None
        self.configure(desired)

    def configure(self, desired: DesiredProbe) -> None:
        """Use this version of the probe from now on."""
        self._desired = desired
        self.thresholds = threshold.thresholds_of(desired.probe)
        self.probe_hash = desired.entry.hash

    def restore(self) -> None:
        """Store the recorded result, without a transition."""
        if self._recorded is not None:
            self._results.restore(self._desired.key, self._recorded)
            self._series.state = self._recorded.state.value

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
        if self.record.blocked is not None:
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

    def _publish(self, record: Record, *, probed: bool = False) -> None:
        """Store `record`, and update the results if the state, its message or its probe time changed."""
        self.record = record
        if record.state is None:
            return
        key, at = self._desired.key, self._now()
        old = self._results.get(key)
        since = old.last_transition_at if old and old.state is record.state else at
        result = next_result(
            old,
            PublishedResult(
                record.state, record.message, self.container_id, self.probe_hash, at, since
            ),
            probed=probed,
            confirmed=probed and threshold.is_confirmed(record, self.thresholds),
        )
        if result is None:
            return
        self._series.state = record.state.value
        if self._results.put(key, result):
            self._on_transition(self._desired, result)

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
