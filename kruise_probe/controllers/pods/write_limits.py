"""Rate limits for the writes of one pod: none for a new state of a probe, two token buckets for everything else.

Without them, markers that select by labels that they write for each other, or a client that reverts our marks, would cause
a hundred writes of a pod per second. A delayed write is requeued until its token is available, and writes the state at
that time. So the final state is always written.

Source: no counterpart.
Differs: Kruise writes on every event.
"""

import asyncio
from collections import deque
from collections.abc import Collection
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

LABELS_PER_MINUTE: Final = 6
"""A label with another value from the message is a new state so many times a minute; further ones use the bucket of messages."""

MARKS_BURST: Final = 10
MARKS_INTERVAL_SECONDS: Final = 10.0
"""Writes without a new state (after an edit of a marker, of labels, or of an owner, and first results): ten and one for each
probe of the pod at once, as the first results of its probes may arrive one by one; then one per 10 s."""

CHECKED_PER_WRITE: Final = 2
"""Pods whose limits each write checks, and removes if they are full."""


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
    if not _only_messages(pod, changes, claims):
        return WriteCause.MARKS
    return WriteCause.LABEL if changes.labels and result_change is not None else WriteCause.MESSAGE


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


class _PodLimits:
    """The buckets of one pod, and the times of its last changes of labels."""

    __slots__ = ("labels", "marks", "messages", "probes")

    def __init__(self, message_interval_seconds: float) -> None:
        self.messages = TokenBucket(burst=MESSAGE_BURST, interval_seconds=message_interval_seconds)
        self.marks = TokenBucket(burst=MARKS_BURST, interval_seconds=MARKS_INTERVAL_SECONDS)
        self.labels: deque[float] = deque(maxlen=LABELS_PER_MINUTE)
        self.probes = 0
        """The largest number of probes so far: fewer probes later must not make a write wait for more than one token."""

    def may_change_label(self, now: float) -> bool:
        return len(self.labels) < LABELS_PER_MINUTE or now - self.labels[0] >= 60.0

    def is_full(self, now: float) -> bool:
        return (
            self.messages.is_full(now)
            and self.marks.is_full(now)
            and (not self.labels or now - self.labels[-1] >= 60.0)
        )


class WriteLimits:
    """The limits of each pod, and the change of results of each pod since its last write.

    `message_interval_seconds` of 0 means no limit for messages.
    """

    def __init__(self, *, message_interval_seconds: float) -> None:
        self._message_interval_seconds = message_interval_seconds
        self._limits: dict[NamespacedName, _PodLimits] = {}
        self._pending: dict[NamespacedName, PendingChange] = {}

    def record_result_change(
        self,
        pod: NamespacedName,
        change: PodResultChange,
        edited: Collection[str] = (),
    ) -> None:
        """Record a change of results in a NodePodProbe."""
        now = asyncio.get_running_loop().time()
        self.put_back(pod, PendingChange(change, now, frozenset(edited)))

    def record_provider_change(self, pod: NamespacedName) -> None:
        """Record that a serverless provider changed a condition."""
        self.put_back(pod, PendingChange(PodResultChange.STATE, None))

    def pending(self, pod: NamespacedName) -> PendingChange | None:
        """Return the change that the next write covers."""
        return self._pending.get(pod)

    def take_pending(self, pod: NamespacedName) -> PendingChange | None:
        """Remove and return the change that the next write covers."""
        return self._pending.pop(pod, None)

    def put_back(self, pod: NamespacedName, change: PendingChange) -> None:
        """Merge a change into the pending one: keep the most important kind and the earliest time."""
        known = self._pending.get(pod)
        if known is not None:
            seen = [each.seen_at for each in (known, change) if each.seen_at is not None]
            change = PendingChange(
                max(known.change, change.change),
                min(seen, default=None),
                known.edited | change.edited,
            )
        self._pending[pod] = change

    def __len__(self) -> int:
        return len(self._limits)

    def wait_seconds(
        self, pod: NamespacedName, cause: WriteCause, *, probes: int, now: float
    ) -> float:
        """Seconds until `pod` may be written, 0.0 for now. `probes` is the number of its probes."""
        limits, now = self._limits.get(pod), now + CLOCK_SLACK_SECONDS
        match cause:
            case _ if limits is None or cause is WriteCause.STATE:
                return 0.0
            case WriteCause.MARKS | WriteCause.FIRST_RESULT:
                return limits.marks.wait_seconds(now, extra=max(probes, limits.probes))
            case WriteCause.LABEL if limits.may_change_label(now):
                return 0.0
            case _:
                return limits.messages.wait_seconds(now)

    def record_write(
        self, pod: NamespacedName, cause: WriteCause, *, probes: int, now: float
    ) -> None:
        """Take the token of a completed write."""
        if cause is WriteCause.STATE:
            return
        now += CLOCK_SLACK_SECONDS
        limits = self._limits.pop(pod, None) or _PodLimits(self._message_interval_seconds)
        self._limits[pod] = limits
        if cause in (WriteCause.MARKS, WriteCause.FIRST_RESULT):
            limits.probes = max(probes, limits.probes)
            limits.marks.take(now)
        elif cause is WriteCause.LABEL and limits.may_change_label(now):
            limits.labels.append(now)
        else:
            limits.messages.take(now)
        self._forget_full(now)

    def delays_marks(self, pod: NamespacedName, *, probes: int, now: float) -> bool:
        """Whether writes without a new state wait for their bucket."""
        return self.wait_seconds(pod, WriteCause.MARKS, probes=probes, now=now) > 0

    def forget(self, pod: NamespacedName) -> None:
        """Remove the limits and the pending change of a deleted pod."""
        self._pending.pop(pod, None)
        self._limits.pop(pod, None)

    def _forget_full(self, now: float) -> None:
        """Remove full limits, beginning with those not used for longest, so that their number is bounded."""
        for pod in list(islice(self._limits, CHECKED_PER_WRITE)):
            if not self._limits[pod].is_full(now):
                return
            del self._limits[pod]
