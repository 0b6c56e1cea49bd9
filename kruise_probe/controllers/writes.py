"""Writes of pods: when one is allowed, and its patch.

There is no limit for a new state of a probe, and two token buckets of a pod for everything else. Without them, markers that
select by labels that they write for each other, or a client that reverts our marks, would cause a hundred writes of a pod per
second. A delayed write is requeued until its token is available, and writes the state at that time. So the final state is
always written.

One strategic merge patch of `pods/status` has all changes of a pod or, if that is invalid, each part has its own. A patch
carries `metadata.uid`: if the pod was replaced under the same name, the API server returns 422. A patch contains only our own
keys and condition types, so it never overwrites changes of other writers. One that gives a role carries the resourceVersion, too.

Source: apimachinery strategicpatch (merge key `type` of conditions, `$patch: delete`).
Differs: Kruise writes on every event.
"""

import math
from collections.abc import Callable
from enum import StrEnum
from operator import attrgetter
from typing import Any, Final

import msgspec

from kruise_probe.api.errors import (
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
    first_line,
)
from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.names import REASON_DAEMON_STALE, REASON_POD_FINISHED, ProbeName
from kruise_probe.api.pods import Mark, Pod, PodCondition
from kruise_probe.api.times import CLOCK_SLACK_SECONDS
from kruise_probe.api.token_bucket import TokenBucket
from kruise_probe.controllers.claims import Claims
from kruise_probe.controllers.indexes import PodResultChange, ResultsChange
from kruise_probe.controllers.marking import Changes, same_condition
from kruise_probe.workqueue.token_turns import TokenTurns
from kruise_probe.workqueue.turns import Priority

MESSAGE_BURST: Final = 3
"""Burst of writes that change only messages and annotations from messages; then one per `--message-update-interval`."""

MARKS_BURST: Final = 9
MARKS_INTERVAL_SECONDS: Final = 10.0
"""Writes without a new state: labels with another value from the message, and writes after an edit of a marker, of labels, or
of an owner, and first results. Nine at once, as six changes of a label a minute are not delayed; then one per 10 s. The marks
of each probe of the pod may be written once more, as the first results of its probes may arrive one by one."""


FINISHED_BURST: Final = 50
FINISHED_INTERVAL_SECONDS: Final = 0.05
"""First writes after pods have finished, of all pods together, namespaces in turns: they give way to results. After an upgrade
of a manager that did not mark finished pods, there may be thousands."""

EVERY_MARKER: Final = ""
"""In place of a marker's name: the refused changes belong to several markers."""

_encoder = msgspec.json.Encoder()


class WriteCause(StrEnum):
    """Why a pod is written; the value is a label of the metric.

    Attributes:
        STATE: a probe's new state. No limit.
        LABEL: a label's other value from a new message. 9 at once, then one per 10 s.
        MESSAGE: messages and annotations from them. 3 at once, then one per `--message-update-interval`.
        MARKS: all other writes. As LABEL, plus one for each probe of the pod.
        FINISHED: the pod has finished. 50 pods at once, then 20 pods per second.
    """

    STATE = "state"
    LABEL = "label"
    MESSAGE = "message"
    MARKS = "marks"
    FINISHED = "finished"


def cause_of(
    pod: Pod, changes: Changes, claims: Claims, pending: ResultsChange | None
) -> WriteCause:
    """The cause of `changes`; `pending` is the change of results since the last write of the pod."""
    if any(condition.reason == REASON_POD_FINISHED for condition in changes.conditions):
        return WriteCause.FINISHED
    result_change = pending.kind if pending else None
    if result_change is PodResultChange.STATE or _staleness_changed(pod, changes):
        return WriteCause.STATE
    if result_change is PodResultChange.FIRST_RESULT or not _only_values_from_messages(
        pod, changes, claims
    ):
        return WriteCause.MARKS
    has_labels = any(mark.field == "labels" for mark in changes.keys)
    return WriteCause.LABEL if has_labels and result_change is not None else WriteCause.MESSAGE


def _staleness_changed(pod: Pod, changes: Changes) -> bool:
    """Whether a daemon became stale or recovered. That changes at most once per Lease duration."""
    for condition in changes.conditions:
        current = pod.condition(condition.type)
        was_stale = current is not None and current.reason == REASON_DAEMON_STALE
        if was_stale != (condition.reason == REASON_DAEMON_STALE):
            return True
    return False


def _only_values_from_messages(pod: Pod, changes: Changes, claims: Claims) -> bool:
    """Whether only messages, and labels and annotations with values from messages, change."""
    if changes.deleted or not all(map(claims.is_from_message, changes.keys)):
        return False
    for condition in changes.conditions:
        current = pod.condition(condition.type)
        if not same_condition(current, condition, but_message=True):
            return False
    return True


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

    `message_interval_seconds` of 0 means no limit for messages. `enqueue` gets a finished pod that may be written now.
    """

    def __init__(
        self,
        *,
        message_interval_seconds: float,
        enqueue: Callable[[NamespacedName, Priority], None],
    ) -> None:
        self._message_interval_seconds = message_interval_seconds
        self._limits: dict[NamespacedName, _PodLimits] = {}
        self.pending: Final[dict[NamespacedName, ResultsChange]] = {}
        """By pod, the change that the next write covers."""
        self._enqueue = enqueue
        self._finished: TokenTurns[NamespacedName] = TokenTurns(
            attrgetter("namespace"),
            self._allow_finished,
            burst=FINISHED_BURST,
            interval_seconds=FINISHED_INTERVAL_SECONDS,
        )
        self._allowed_finished: set[NamespacedName] = set()
        """The finished pods that have their token, until they are written."""

    def record_change(self, pod: NamespacedName, change: ResultsChange) -> None:
        """Merge a change into the pending one: keep the most important kind and the earliest time."""
        known = self.pending.get(pod)
        if known is not None:
            change = ResultsChange(
                max(known.kind, change.kind),
                known.edited | change.edited,
                known.seen_at if known.seen_at is not None else change.seen_at,
            )
        self.pending[pod] = change

    def drop_pending(self, pod: NamespacedName, covered: ResultsChange | None) -> None:
        """Drop a change that a write has covered, unless another one has been added to it."""
        if covered is not None and self.pending.get(pod) is covered:
            del self.pending[pod]

    def wait_seconds(
        self, pod: NamespacedName, cause: WriteCause, *, probes: int, now: float
    ) -> float:
        """Seconds until `pod` may be written, 0.0 for now; infinite if it is enqueued then. `probes` is the number of its probes."""
        if cause is WriteCause.FINISHED:
            return self._wait_of_finished(pod)
        limits = self._limits.get(pod)
        if limits is None or cause is WriteCause.STATE:
            return 0.0
        if cause is WriteCause.MESSAGE:
            wait = limits.messages.wait_seconds(now)
        else:
            # The changes of labels have no share in the writes for first results.
            extra = 0 if cause is WriteCause.LABEL else max(probes, limits.probes)
            wait = limits.marks.wait_seconds(now, extra=extra)
        # A shorter wait than a timer can measure would never end.
        return wait if wait > CLOCK_SLACK_SECONDS else 0.0

    def _wait_of_finished(self, pod: NamespacedName) -> float:
        if pod not in self._allowed_finished and not self._finished.take(pod, Priority.LOW):
            return math.inf
        self._allowed_finished.add(pod)
        return 0.0

    def _allow_finished(self, pod: NamespacedName, priority: Priority) -> None:
        self._allowed_finished.add(pod)
        self._enqueue(pod, priority)

    def record_write(
        self, pod: NamespacedName, cause: WriteCause, *, probes: int, now: float
    ) -> None:
        """Take the token of a completed write."""
        if cause is WriteCause.FINISHED:
            self._allowed_finished.discard(pod)
        if cause in (WriteCause.STATE, WriteCause.FINISHED):
            return
        if pod not in self._limits:
            self._limits[pod] = _PodLimits(self._message_interval_seconds)
        limits = self._limits[pod]
        bucket = limits.messages if cause is WriteCause.MESSAGE else limits.marks
        bucket.take(now + CLOCK_SLACK_SECONDS)
        limits.probes = max(probes, limits.probes)

    def forget(self, pod: NamespacedName) -> None:
        """Remove the limits and the pending change of a deleted pod."""
        self.pending.pop(pod, None)
        self._limits.pop(pod, None)
        self._allowed_finished.discard(pod)


def encode_patch(pod: Pod, changes: Changes, version: str = "") -> bytes:
    """The patch that writes `changes`. With a `version` it has no effect on another version of the pod."""
    metadata: dict[str, Any] = {"uid": pod.uid}
    if version:
        metadata["resourceVersion"] = version
    for mark, value in changes.keys.items():
        metadata.setdefault(mark.field, {})[mark.name] = value
    body: dict[str, Any] = {"metadata": metadata}
    entries = [_entry(condition, pod.condition(condition.type)) for condition in changes.conditions]
    entries += [{"$patch": "delete", "type": name} for name in changes.deleted]
    if entries:
        body["status"] = {"conditions": entries}
    return _encoder.encode(body)


def _entry(condition: PodCondition, current: PodCondition | None) -> dict[str, str | None]:
    """Encode a condition. Omit unchanged times, and texts that are empty and not set."""
    entry: dict[str, str | None] = {"type": condition.type, "status": condition.status}
    if condition.reason or (current is not None and current.reason):
        entry["reason"] = condition.reason or None
    if condition.message or (current is not None and current.message):
        entry["message"] = condition.message or None
    if condition.last_probe_time:
        entry["lastProbeTime"] = condition.last_probe_time
    if condition.last_transition_time:
        entry["lastTransitionTime"] = condition.last_transition_time
    return entry


def not_applied(changes: Changes, written: Pod) -> list[Mark]:
    """What was sent and the response to the patch does not show: an admission policy changed the request."""
    found: list[Mark] = []
    for mark, value in changes.keys.items():
        if written.value_of(mark) != value:
            found.append(mark)
    wanted = {condition.type: condition for condition in changes.conditions}
    for name in (*wanted, *changes.deleted):
        current = written.condition(name)
        is_applied = same_condition(current, wanted[name]) if name in wanted else current is None
        if not is_applied:
            found.append(Mark("conditions", name))
    return found


def parts_of(changes: Changes, claims: Claims) -> dict[str, Changes]:
    """Split changes by marker: its labels and annotations. Conditions and removals are the part of EVERY_MARKER.

    So a value that the API server refuses only affects its own marker.
    """
    parts: dict[str, Changes] = {}
    if changes.conditions or changes.deleted:
        parts[EVERY_MARKER] = Changes({}, changes.conditions, changes.deleted)
    for mark, value in changes.keys.items():
        marker = EVERY_MARKER
        if value is not None and mark in claims.owners:
            marker = ProbeName.parse(claims.owners[mark].name).marker
        part = parts.setdefault(marker, Changes({}, [], []))
        part.keys[mark] = value
    return parts


def pod_is_gone(error: KubeError) -> bool:
    """Whether the error means that the pod with this uid no longer exists."""
    match error:
        case NotFound():
            return True
        case Invalid() | Conflict():
            return "metadata.uid" in error.message or "Precondition failed: UID" in error.message
        case _:
            return False


def refusal(error: KubeError) -> str:
    """The short reason of a permanent refusal; empty for a transient error."""
    match error:
        case BadRequest() | Forbidden() | Invalid() if not pod_is_gone(error):
            return f"{error.code} {first_line(error.message)}"
        case _:
            return ""
