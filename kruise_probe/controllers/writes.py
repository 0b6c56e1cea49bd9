"""Writes of pods: when one is allowed, and its patch.

There is no limit for a new state of a probe, and two token buckets of a pod for everything else. Without them, markers that
select by labels that they write for each other, or a client that reverts our marks, would cause a hundred writes of a pod per
second. A delayed write is requeued until its token is available, and writes the state at that time. So the final state is
always written.

One strategic merge patch of `pods/status` has all changes of a pod or, if that is refused, each part has its own. A part that was
refused before is not sent together with others. A patch
carries `metadata.uid`: if the pod was replaced under the same name, the API server returns 422. A patch contains only our own
keys and condition types, so it never overwrites changes of other writers. One that gives a role carries the resourceVersion, too.

Source: apimachinery strategicpatch (merge key `type` of conditions, `$patch: delete`).
Differs: Kruise writes on every event.
"""

from collections.abc import Collection
from enum import StrEnum
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
from kruise_probe.controllers.marking import Changes, same_condition
from kruise_probe.controllers.node_index import PodResultChange, ResultsChange

MESSAGE_BURST: Final = 3
"""Burst of writes that change only messages and annotations from messages; then one per `--message-update-interval`."""

MARKS_BURST: Final = 9
MARKS_INTERVAL_SECONDS: Final = 10.0
"""Writes without a new state: labels with another value from the message, and writes after an edit of a marker, of labels, or
of an owner, and first results. Nine at once, as six changes of a label a minute are not delayed; then one per 10 s. The marks
of each probe of the pod may be written once more, as the first results of its probes may arrive one by one."""

EVERY_MARKER: Final = ""
"""In place of a marker's name: the refused changes belong to several markers."""

_encoder = msgspec.json.Encoder()


class WriteCause(StrEnum):
    """Why a pod is written; the value is a label of the metric.

    Attributes:
        STATE: a probe's new state, or the end of the pod. No limit.
        LABEL: a label's other value from a new message. 9 at once, then one per 10 s.
        MESSAGE: messages and annotations from them. 3 at once, then one per `--message-update-interval`.
        MARKS: all other writes. As LABEL, plus one for each probe of the pod.
    """

    STATE = "state"
    LABEL = "label"
    MESSAGE = "message"
    MARKS = "marks"


def cause_of(
    pod: Pod,
    changes: Changes,
    claims: Claims,
    pending: ResultsChange | None,
) -> WriteCause:
    """The cause of `changes`; `pending` is the change of results since the last write of the pod."""
    result_change = None
    if pending is not None:
        result_change = pending.kind
    if result_change is PodResultChange.STATE:
        return WriteCause.STATE
    if _ends_results(pod, changes):
        return WriteCause.STATE
    if result_change is PodResultChange.FIRST_RESULT:
        return WriteCause.MARKS
    if not _only_values_from_messages(pod, changes, claims):
        return WriteCause.MARKS
    has_labels = any(mark.field == "labels" for mark in changes.keys)
    if has_labels and result_change is not None:
        return WriteCause.LABEL
    return WriteCause.MESSAGE


def _ends_results(pod: Pod, changes: Changes) -> bool:
    """Whether the pod finished, or a daemon became stale or recovered. That changes at most once per Lease duration."""
    for condition in changes.conditions:
        if condition.reason == REASON_POD_FINISHED:
            return True
        current = pod.condition(condition.type)
        is_stale = condition.reason == REASON_DAEMON_STALE
        was_stale = current is not None and current.reason == REASON_DAEMON_STALE
        if is_stale != was_stale:
            return True
    return False


def _only_values_from_messages(
    pod: Pod,
    changes: Changes,
    claims: Claims,
) -> bool:
    """Whether only messages, and labels and annotations with values from messages, change."""
    if changes.deleted:
        return False
    if not all(map(claims.is_from_message, changes.keys)):
        return False
    for condition in changes.conditions:
        current = pod.condition(condition.type)
        if not same_condition(current, condition, but_message=True):
            return False
    return True


class _PodBuckets:
    """The buckets of one pod."""

    __slots__ = ("marks", "messages", "probes")

    def __init__(self, message_interval_seconds: float) -> None:
        self.messages = TokenBucket(burst=MESSAGE_BURST, interval_seconds=message_interval_seconds)
        self.marks = TokenBucket(burst=MARKS_BURST, interval_seconds=MARKS_INTERVAL_SECONDS)
        self.probes = 0
        """The largest number of probes so far: fewer probes later must not make a write wait for more than one token."""


class WritePacer:
    """When each pod may be written, and the change of results of each pod since its last write.

    `message_interval_seconds` of 0 means no limit for messages.
    """

    def __init__(self, *, message_interval_seconds: float) -> None:
        self._message_interval_seconds = message_interval_seconds
        self._buckets: dict[NamespacedName, _PodBuckets] = {}
        self.pending: Final[dict[NamespacedName, ResultsChange]] = {}
        """By pod, the change that the next write covers."""

    def record_change(self, pod: NamespacedName, change: ResultsChange) -> None:
        """Merge a change into the pending one: keep the most important kind and the earliest time."""
        known = self.pending.get(pod)
        if known is not None:
            seen_at = known.seen_at
            if seen_at is None:
                seen_at = change.seen_at
            kind = max(known.kind, change.kind)
            edited = known.edited | change.edited
            change = ResultsChange(kind, edited, seen_at)
        self.pending[pod] = change

    def drop_pending(self, pod: NamespacedName, covered: ResultsChange | None) -> None:
        """Drop a change that a write has covered, unless another one has been added to it."""
        if covered is None:
            return
        if self.pending.get(pod) is covered:
            del self.pending[pod]

    def wait_seconds(
        self,
        pod: NamespacedName,
        cause: WriteCause,
        *,
        probes: int,
        now: float,
    ) -> float:
        """Seconds until `pod` may be written, 0.0 for now. `probes` is the number of its probes."""
        if cause is WriteCause.STATE:
            return 0.0
        buckets = self._buckets.get(pod)
        if buckets is None:
            return 0.0
        if cause is WriteCause.MESSAGE:
            wait = buckets.messages.wait_seconds(now)
        elif cause is WriteCause.LABEL:  # It has no share in the writes for first results.
            wait = buckets.marks.wait_seconds(now)
        else:
            first_results = max(probes, buckets.probes)
            wait = buckets.marks.wait_seconds(now, extra=first_results)
        if wait <= CLOCK_SLACK_SECONDS:  # A timer cannot measure it, so it would never end.
            return 0.0
        return wait

    def record_write(
        self,
        pod: NamespacedName,
        cause: WriteCause,
        *,
        probes: int,
        now: float,
    ) -> None:
        """Take the token of a completed write."""
        if cause is WriteCause.STATE:
            return
        buckets = self._buckets.get(pod)
        if buckets is None:
            buckets = self._buckets[pod] = _PodBuckets(self._message_interval_seconds)
        bucket = buckets.marks
        if cause is WriteCause.MESSAGE:
            bucket = buckets.messages
        bucket.take(now + CLOCK_SLACK_SECONDS)
        buckets.probes = max(probes, buckets.probes)

    def forget(self, pod: NamespacedName) -> None:
        """Remove the buckets and the pending change of a deleted pod."""
        self.pending.pop(pod, None)
        self._buckets.pop(pod, None)


def encode_patch(
    pod: Pod,
    changes: Changes,
    version: str = "",
) -> bytes:
    """The patch that writes `changes`. With a `version` it has no effect on another version of the pod."""
    metadata: dict[str, Any] = {"uid": pod.uid}
    if version:
        metadata["resourceVersion"] = version
    for mark, value in changes.keys.items():
        values = metadata.setdefault(mark.field, {})
        values[mark.name] = value
    body: dict[str, Any] = {"metadata": metadata}
    conditions = []
    for condition in changes.conditions:
        current = pod.condition(condition.type)
        conditions.append(_entry(condition, current))
    conditions += [{"$patch": "delete", "type": name} for name in changes.deleted]
    if conditions:
        body["status"] = {"conditions": conditions}
    return _encoder.encode(body)


def _entry(condition: PodCondition, current: PodCondition | None) -> dict[str, Any]:
    """Encode a condition, without unchanged times. A text that is empty removes the current one."""
    entry: dict[str, Any] = msgspec.to_builtins(condition)
    for text in ("reason", "message"):
        if entry.get(text):
            continue
        entry.pop(text, None)
        if getattr(current, text, None):
            entry[text] = None
    return entry


def not_applied(changes: Changes, written: Pod) -> list[Mark]:
    """What was sent and the response to the patch does not show: an admission policy changed the request."""
    found = []
    for mark, value in changes.keys.items():
        is_applied = written.value_of(mark) == value
        if not is_applied:
            found.append(mark)
    for condition in changes.conditions:
        current = written.condition(condition.type)
        if not same_condition(current, condition):
            mark = Mark("conditions", condition.type)
            found.append(mark)
    for name in changes.deleted:
        current = written.condition(name)
        if current is not None:
            found.append(Mark("conditions", name))
    return found


def parts_of(changes: Changes, claims: Claims) -> dict[str, Changes]:
    """Split changes by marker: its labels and annotations. Conditions and removals are the part of EVERY_MARKER.

    So a value that the API server refuses only affects its own marker.
    """
    parts = {}
    if changes.conditions or changes.deleted:
        parts[EVERY_MARKER] = Changes({}, changes.conditions, changes.deleted)
    for mark, value in changes.keys.items():
        marker = EVERY_MARKER
        owner = claims.owners.get(mark)
        if value is not None and owner is not None:
            marker = ProbeName.parse(owner.name).marker
        part = parts.setdefault(marker, Changes({}, [], []))
        part.keys[mark] = value
    return parts


def split_off(
    markers: Collection[str],
    changes: Changes,
    claims: Claims,
) -> list[Changes]:
    """All changes together, but those of `markers`, each alone."""
    if not markers:  # the common case
        return [changes]
    together = Changes({}, [], [])
    parts = []
    for marker, part in parts_of(changes, claims).items():
        if marker in markers:
            parts.append(part)
            continue
        together.keys.update(part.keys)
        together.conditions.extend(part.conditions)
        together.deleted.extend(part.deleted)
    if any(together):
        parts.insert(0, together)
    return parts


def pod_is_gone(error: KubeError) -> bool:
    """Whether the error means that the pod with this uid no longer exists."""
    match error:
        case NotFound():
            return True
        case Invalid() | Conflict():
            message = error.message
            return "metadata.uid" in message or "Precondition failed: UID" in message
        case _:
            return False


def refusal(error: KubeError) -> str:
    """The short reason of a permanent refusal; empty for a transient error."""
    match error:
        case BadRequest() | Forbidden() | Invalid() if not pod_is_gone(error):
            text = first_line(error.message)
            return f"{error.code} {text}"
        case _:
            return ""
