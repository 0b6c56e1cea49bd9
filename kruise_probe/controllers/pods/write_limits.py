"""Rate limits for the writes of one pod: none for a new state of a probe, token buckets for everything else.

Without them, markers in a selector cycle, or a client that reverts our marks, would cause a hundred writes of a pod
per second. A delayed write is requeued until its token is available, and writes the state at that time. So the final
state is always written, and no change waits for longer than one interval.

Source: no counterpart.
Differs: Kruise writes on every event.
"""

import asyncio
from enum import StrEnum
from itertools import islice
from typing import Final, NamedTuple

from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.names import REASON_DAEMON_STALE
from kruise_probe.api.pods import Pod, PodCondition
from kruise_probe.api.times import CLOCK_SLACK_SECONDS
from kruise_probe.api.token_bucket import TokenBucket
from kruise_probe.controllers.node_index import PodResultChange
from kruise_probe.controllers.pods.claims import Claims
from kruise_probe.controllers.pods.marking import Changes

MESSAGE_BURST: Final = 3
"""Burst of writes that change only messages and values from messages; then one per `--message-update-interval`."""

MARKS_BURST: Final = 10
MARKS_INTERVAL_SECONDS: Final = 10.0
"""Writes without a new state (after an edit of a marker, of labels, or of an owner): ten at once, then one per 10 s."""

FIRST_RESULT_INTERVAL_SECONDS: Final = 60.0
"""Each probe of a pod has one more write for its first result. Used ones are refilled at one per minute."""

CHECKED_PER_WRITE: Final = 2
"""Buckets that each write checks, and removes if they are full."""


class PendingChange(NamedTuple):
    """The most important change of results since the last write of a pod, and the loop time of the first one.

    `seen_at` is None for a change by a serverless provider.
    """

    change: PodResultChange
    seen_at: float | None


class WriteCause(StrEnum):
    """Why a pod is written; the value is a label of the metric."""

    STATE = "state"
    FIRST_RESULT = "first_result"
    MESSAGE = "message"
    MARKS = "marks"


def cause_of(
    pod: Pod, changes: Changes, claims: Claims, result_change: PodResultChange | None
) -> WriteCause:
    """The cause of `changes`; `result_change` is the most important one since the last write of the pod."""
    if result_change is PodResultChange.STATE or _staleness_changed(pod, changes):
        return WriteCause.STATE
    if result_change is PodResultChange.FIRST_RESULT:
        return WriteCause.FIRST_RESULT
    return WriteCause.MESSAGE if _only_messages(pod, changes, claims) else WriteCause.MARKS


def _staleness_changed(pod: Pod, changes: Changes) -> bool:
    """Whether a daemon became stale or recovered. That changes at most once per Lease duration."""
    for new in changes.conditions:
        current = pod.condition(new.type)
        was_stale = current is not None and current.reason == REASON_DAEMON_STALE
        if was_stale != (new.reason == REASON_DAEMON_STALE):
            return True
    return False


def _only_messages(pod: Pod, changes: Changes, claims: Claims) -> bool:
    """Whether only messages, and labels and annotations with values from messages, change."""
    return (
        not changes.deleted
        and all(claims.is_from_message("labels", each) for each in changes.labels)
        and all(claims.is_from_message("annotations", each) for each in changes.annotations)
        and all(_same_but_message(pod.condition(each.type), each) for each in changes.conditions)
    )


def _same_but_message(current: PodCondition | None, new: PodCondition) -> bool:
    return (
        current is not None
        and current.status == new.status
        and (current.reason or "") == (new.reason or "")
    )


class _Buckets:
    """One token bucket per pod. A bucket that is full again is removed."""

    def __init__(self, *, burst: int, interval_seconds: float) -> None:
        self._burst = burst
        self._interval_seconds = interval_seconds
        self._by_pod: dict[NamespacedName, TokenBucket] = {}

    def __len__(self) -> int:
        return len(self._by_pod)

    def wait_seconds(self, pod: NamespacedName, now: float, *, extra: int = 0) -> float:
        bucket = self._by_pod.get(pod)
        return 0.0 if bucket is None else bucket.wait_seconds(now, extra=extra)

    def take(self, pod: NamespacedName, now: float) -> None:
        bucket = self._by_pod.pop(pod, None)
        if bucket is None:
            bucket = TokenBucket(burst=self._burst, interval_seconds=self._interval_seconds)
        self._by_pod[pod] = bucket
        bucket.take(now)
        self._forget_full(now)

    def forget(self, pod: NamespacedName) -> None:
        self._by_pod.pop(pod, None)

    def _forget_full(self, now: float) -> None:
        """Remove full buckets, beginning with those not used for longest, so that their number is bounded."""
        for pod in list(islice(self._by_pod, CHECKED_PER_WRITE)):
            if not self._by_pod[pod].is_full(now):
                return
            del self._by_pod[pod]


class WriteLimits:
    """The token buckets of pods, and the change of results of each pod since its last write.

    The first results of a pod's probes may arrive one by one, so each probe has one write for its own. A probe that
    is removed and added again has another first result. Once the extra writes are used, these use the bucket of
    marks. `message_interval_seconds` of 0 means no limit for messages.
    """

    def __init__(self, *, message_interval_seconds: float) -> None:
        self._messages = _Buckets(burst=MESSAGE_BURST, interval_seconds=message_interval_seconds)
        self._marks = _Buckets(burst=MARKS_BURST, interval_seconds=MARKS_INTERVAL_SECONDS)
        self._first_results = _Buckets(burst=0, interval_seconds=FIRST_RESULT_INTERVAL_SECONDS)
        self._pending: dict[NamespacedName, PendingChange] = {}

    def record_result_change(self, pod: NamespacedName, change: PodResultChange) -> None:
        """Record a change of results in a NodePodProbe."""
        self.put_back(pod, PendingChange(change, asyncio.get_running_loop().time()))

    def record_provider_change(self, pod: NamespacedName) -> None:
        """Record that a serverless provider changed a condition."""
        self.put_back(pod, PendingChange(PodResultChange.STATE, None))

    def take_pending(self, pod: NamespacedName) -> PendingChange | None:
        """Remove and return the change that the next write covers."""
        return self._pending.pop(pod, None)

    def put_back(self, pod: NamespacedName, change: PendingChange) -> None:
        """Merge a change into the pending one: keep the most important kind and the earliest time."""
        known = self._pending.get(pod)
        if known is not None:
            seen = [each.seen_at for each in (known, change) if each.seen_at is not None]
            change = PendingChange(max(known.change, change.change), min(seen, default=None))
        self._pending[pod] = change

    def __len__(self) -> int:
        return sum(map(len, (self._messages, self._marks, self._first_results)))

    def wait_seconds(
        self, pod: NamespacedName, cause: WriteCause, *, probes: int, now: float
    ) -> float:
        """Seconds until `pod` may be written, 0.0 for now. `probes` is the number of its probes."""
        now += CLOCK_SLACK_SECONDS
        if cause is WriteCause.STATE or self._uses_first_result_token(pod, cause, probes, now):
            return 0.0
        return self._shared(cause).wait_seconds(pod, now)

    def record_write(
        self, pod: NamespacedName, cause: WriteCause, *, probes: int, now: float
    ) -> None:
        """Take the token of a completed write."""
        now += CLOCK_SLACK_SECONDS
        if self._uses_first_result_token(pod, cause, probes, now):
            self._first_results.take(pod, now)
        elif cause is not WriteCause.STATE:
            self._shared(cause).take(pod, now)

    def forget(self, pod: NamespacedName) -> None:
        """Remove the buckets and the pending change of a deleted pod."""
        self._pending.pop(pod, None)
        for each in (self._messages, self._marks, self._first_results):
            each.forget(pod)

    def _uses_first_result_token(
        self, pod: NamespacedName, cause: WriteCause, probes: int, now: float
    ) -> bool:
        return cause is WriteCause.FIRST_RESULT and not self._first_results.wait_seconds(
            pod, now, extra=probes
        )

    def _shared(self, cause: WriteCause) -> _Buckets:
        return self._messages if cause is WriteCause.MESSAGE else self._marks
