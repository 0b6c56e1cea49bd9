"""Rate limits for the writes of one pod: none for a new state of a probe, two token buckets for everything else.

Without them, markers that select by labels that they write for each other, or a client that reverts our marks, would cause
a hundred writes of a pod per second. A delayed write is requeued until its token is available, and writes the state at
that time. So the final state is always written.

Source: no counterpart.
Differs: Kruise writes on every event.
"""

import asyncio
from collections.abc import Collection
from enum import StrEnum
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
"""Burst of writes that change only messages and annotations from messages; then one per `--message-update-interval`."""

MARKS_BURST: Final = 9
MARKS_INTERVAL_SECONDS: Final = 10.0
"""Writes without a new state: labels with another value from the message, and writes after an edit of a marker, of labels, or
of an owner, and first results. Nine at once, as six changes of a label a minute are not delayed; then one per 10 s. The marks
of each probe of the pod may be written once more, as the first results of its probes may arrive one by one."""


class PendingChange(NamedTuple):
    """The most important change of results since the last write of a pod, and the loop time of the first one.

    `seen_at` is None for a change by a serverless provider. `edited` names the probes with the first result of another handler.
    """

    change: PodResultChange
    seen_at: float | None
    edited: frozenset[str] = frozenset()


class WriteCause(StrEnum):
    """Why a pod is written; the value is a label of the metric."""

    STATE = "state"
    LABEL = "label"
    MESSAGE = "message"
    MARKS = "marks"


def cause_of(
    pod: Pod, changes: Changes, claims: Claims, result_change: PodResultChange | None
) -> WriteCause:
    """The cause of `changes`; `result_change` is the most important one since the last write of the pod."""
    if result_change is PodResultChange.STATE or _staleness_changed(pod, changes):
        return WriteCause.STATE
    if result_change is PodResultChange.FIRST_RESULT or not _only_messages(pod, changes, claims):
        return WriteCause.MARKS
    return WriteCause.LABEL if changes.labels and result_change is not None else WriteCause.MESSAGE


def _staleness_changed(pod: Pod, changes: Changes) -> bool:
    """Whether a daemon became stale or recovered. That changes at most once per Lease duration."""
    were_stale = {each.type for each in pod.conditions if each.reason == REASON_DAEMON_STALE}
    return any(
        (each.type in were_stale) != (each.reason == REASON_DAEMON_STALE)
        for each in changes.conditions
    )


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


class _PodLimits:
    """The buckets of one pod."""

    __slots__ = ("marks", "messages", "probes")

    def __init__(self, message_interval_seconds: float) -> None:
        self.messages = TokenBucket(burst=MESSAGE_BURST, interval_seconds=message_interval_seconds)
        self.marks = TokenBucket(burst=MARKS_BURST, interval_seconds=MARKS_INTERVAL_SECONDS)
        self.probes = 0
        """The largest number of probes so far: fewer probes later must not make a write wait for more than one token."""


class WriteLimits:
    """The limits of each pod, and the change of results of each pod since its last write.

    `message_interval_seconds` of 0 means no limit for messages.
    """

    def __init__(self, *, message_interval_seconds: float) -> None:
        self._message_interval_seconds = message_interval_seconds
        self._limits: dict[NamespacedName, _PodLimits] = {}
        self._pending: dict[NamespacedName, PendingChange] = {}

    def record_result_change(
        self, pod: NamespacedName, change: PodResultChange, edited: Collection[str] = ()
    ) -> None:
        """Record a change of results in a NodePodProbe."""
        now = asyncio.get_running_loop().time()
        self._add(pod, PendingChange(change, now, frozenset(edited)))

    def record_provider_change(self, pod: NamespacedName) -> None:
        """Record that a serverless provider changed a condition."""
        self._add(pod, PendingChange(PodResultChange.STATE, None))

    def _add(self, pod: NamespacedName, change: PendingChange) -> None:
        """Merge a change into the pending one: keep the most important kind and the earliest time."""
        known = self._pending.get(pod)
        if known is not None:
            change = PendingChange(
                max(known.change, change.change),
                known.seen_at if known.seen_at is not None else change.seen_at,
                known.edited | change.edited,
            )
        self._pending[pod] = change

    def pending(self, pod: NamespacedName) -> PendingChange | None:
        """The change that the next write covers."""
        return self._pending.get(pod)

    def drop_pending(self, pod: NamespacedName, covered: PendingChange | None) -> None:
        """Drop a change that a write has covered, unless another one has been added to it."""
        if covered is not None and self._pending.get(pod) is covered:
            del self._pending[pod]

    def wait_seconds(
        self, pod: NamespacedName, cause: WriteCause, *, probes: int, now: float
    ) -> float:
        """Seconds until `pod` may be written, 0.0 for now. `probes` is the number of its probes."""
        limits, now = self._limits.get(pod), now + CLOCK_SLACK_SECONDS
        if limits is None or cause is WriteCause.STATE:
            return 0.0
        if cause is WriteCause.MESSAGE:
            return limits.messages.wait_seconds(now)
        # The changes of labels have no share in the writes for first results.
        extra = 0 if cause is WriteCause.LABEL else max(probes, limits.probes)
        return limits.marks.wait_seconds(now, extra=extra)

    def record_write(
        self, pod: NamespacedName, cause: WriteCause, *, probes: int, now: float
    ) -> None:
        """Take the token of a completed write."""
        if cause is WriteCause.STATE:
            return
        if pod not in self._limits:
            self._limits[pod] = _PodLimits(self._message_interval_seconds)
        limits = self._limits[pod]
        bucket = limits.messages if cause is WriteCause.MESSAGE else limits.marks
        bucket.take(now + CLOCK_SLACK_SECONDS)
        limits.probes = max(probes, limits.probes)

    def delays_marks(self, pod: NamespacedName, *, probes: int, now: float) -> bool:
        """Whether writes without a new state wait for their bucket."""
        return self.wait_seconds(pod, WriteCause.MARKS, probes=probes, now=now) > 0

    def forget(self, pod: NamespacedName) -> None:
        """Remove the limits and the pending change of a deleted pod."""
        self._pending.pop(pod, None)
        self._limits.pop(pod, None)
