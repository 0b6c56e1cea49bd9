"""How often one pod is written: at once for a new state of a probe, everything else at a bounded rate.

Without it two markers whose labels select for each other, or somebody who undoes our marks, would have one pod
written a hundred times a second. A write that has to wait is made when its token is there, with what is true then;
so the end state is always reached, and no change waits for longer than one interval.

Source: no counterpart; Kruise writes on every event.
Differs: nothing.
"""

from enum import StrEnum
from itertools import islice
from typing import Final

from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.names import REASON_AGENT_STALE
from kruise_probe.api.pods import Pod, PodCondition
from kruise_probe.api.token_bucket import TokenBucket
from kruise_probe.controllers.pods.marking import Changes
from kruise_probe.controllers.result_changes import ResultChange

MESSAGE_BURST: Final = 3
"""Writes of messages alone that a pod may have at once; then one per `--message-update-interval`."""

MARKS_BURST: Final = 10
MARKS_INTERVAL_SECONDS: Final = 10.0
"""Writes that no new state explains (a marker's edit, a pod's labels, a change of owner): ten at once, then one per 10 s."""

FIRST_RESULT_INTERVAL_SECONDS: Final = 60.0
"""Each probe of a pod has one write for its first result beside these; used ones come back one per minute."""

CLOCK_SLACK_SECONDS: Final = 0.001
"""A timer may be early by the clock's resolution; a token that is due within this time is there."""


FORGOTTEN_PER_WRITE: Final = 2


class WriteCause(StrEnum):
    """Why a pod is to be written; the value labels the metric."""

    STATE = "state"
    FIRST_RESULT = "first_result"
    MESSAGE = "message"
    MARKS = "marks"


def cause_of(pod: Pod, changes: Changes, reported: ResultChange | None) -> WriteCause:
    """The cause of `changes`; `reported` is what the node reported on the pod since its last write."""
    if reported is ResultChange.STATE or _staleness_changed(pod, changes):
        return WriteCause.STATE
    if reported is ResultChange.FIRST_RESULT:
        return WriteCause.FIRST_RESULT
    return WriteCause.MESSAGE if _only_messages(pod, changes) else WriteCause.MARKS


def _staleness_changed(pod: Pod, changes: Changes) -> bool:
    """An agent stopped renewing its Lease, or is back: a state of the node, which changes once a Lease's duration."""
    for new in changes.conditions:
        current = pod.condition(new.type)
        was_stale = current is not None and current.reason == REASON_AGENT_STALE
        if was_stale != (new.reason == REASON_AGENT_STALE):
            return True
    return False


def _only_messages(pod: Pod, changes: Changes) -> bool:
    if changes.labels or changes.annotations or changes.deleted:
        return False
    return all(_same_but_message(pod.condition(each.type), each) for each in changes.conditions)


def _same_but_message(current: PodCondition | None, new: PodCondition) -> bool:
    return (
        current is not None
        and current.status == new.status
        and (current.reason or "") == (new.reason or "")
    )


class _PodBuckets:
    """The buckets of one pod. That of first results holds one token for each probe of the pod."""

    __slots__ = ("_first_results", "_marks", "_messages")

    def __init__(self, message_interval_seconds: float) -> None:
        self._messages = TokenBucket(burst=MESSAGE_BURST, interval_seconds=message_interval_seconds)
        self._marks = TokenBucket(burst=MARKS_BURST, interval_seconds=MARKS_INTERVAL_SECONDS)
        self._first_results = TokenBucket(burst=0, interval_seconds=FIRST_RESULT_INTERVAL_SECONDS)

    def of(self, cause: WriteCause, probes: int, now: float) -> TokenBucket:
        """The bucket that a write of this cause takes its token from."""
        if cause is WriteCause.MESSAGE:
            return self._messages
        if cause is WriteCause.FIRST_RESULT and self._has_first_result(probes, now):
            return self._first_results
        return self._marks

    def wait_seconds(self, cause: WriteCause, probes: int, now: float) -> float:
        bucket = self.of(cause, probes, now)
        return 0.0 if bucket is self._first_results else bucket.wait_seconds(now)

    def are_full(self, now: float) -> bool:
        return all(each.is_full(now) for each in (self._messages, self._marks, self._first_results))

    def _has_first_result(self, probes: int, now: float) -> bool:
        return not self._first_results.wait_seconds(now, extra=probes)


class WriteLimits:
    """The token buckets of the pods that were written lately; a pod whose buckets are full again is forgotten.

    The first results of a pod's probes may come one by one, so each probe has one write for its own. A probe
    that leaves and comes back has its first result again; such writes soon take their tokens from the bucket of
    marks. `message_interval_seconds` of 0 is no limit for messages.
    """

    def __init__(self, *, message_interval_seconds: float) -> None:
        self._message_interval_seconds = message_interval_seconds
        self._pods: dict[NamespacedName, _PodBuckets] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def wait_seconds(
        self, pod: NamespacedName, cause: WriteCause, *, probes: int, now: float
    ) -> float:
        """Seconds until `pod` may be written, 0.0 for now. `probes` is how many probes write on it."""
        buckets = self._pods.get(pod)
        if buckets is None or cause is WriteCause.STATE:
            return 0.0
        return buckets.wait_seconds(cause, probes, now + CLOCK_SLACK_SECONDS)

    def wrote(self, pod: NamespacedName, cause: WriteCause, *, probes: int, now: float) -> None:
        """Takes the token of a write that was made."""
        if cause is WriteCause.STATE:
            return
        now += CLOCK_SLACK_SECONDS
        buckets = self._pods.pop(pod, None) or _PodBuckets(self._message_interval_seconds)
        self._pods[pod] = buckets
        buckets.of(cause, probes, now).take(now)
        self._forget_full(now)

    def forget(self, pod: NamespacedName) -> None:
        """The pod is gone."""
        self._pods.pop(pod, None)

    def _forget_full(self, now: float) -> None:
        """Looks at the pods that were written longest ago: more of them go than come."""
        for key in list(islice(self._pods, FORGOTTEN_PER_WRITE)):
            if not self._pods[key].are_full(now):
                return
            del self._pods[key]
