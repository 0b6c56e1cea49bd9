"""A series of equal events, written as one Event with a count. No I/O.

Source: client-go tools/record/events_cache.go and util/eventutil.go (names).
Differs: a caller may choose another key than the message. A series over budget is written later, not dropped.
"""

from datetime import datetime
from typing import NamedTuple

import msgspec

from kruise_probe.api.times import format_time
from kruise_probe.api.token_bucket import TokenBucket

BURST = 25
REFILL_SECONDS = 60.0
"""A series may be written `BURST` times at once, then once per minute. Occurrences in between are aggregated."""

MAX_NAME_LENGTH = 253


DEFAULT_NAMESPACE = "default"
"""Namespace of events about cluster-scoped objects."""


def new_budget() -> TokenBucket:
    """Create the token bucket that limits the writes of one series."""
    return TokenBucket(burst=BURST, interval_seconds=REFILL_SECONDS)


class ObjectReference(NamedTuple):
    """The object of an event: core/v1 ObjectReference."""

    namespace: str
    name: str
    uid: str
    api_version: str = "v1"
    kind: str = "Pod"

    @property
    def event_namespace(self) -> str:
        return self.namespace or DEFAULT_NAMESPACE


class SeriesKey(NamedTuple):
    """Identity of a series: object, type, reason, and a probe or the message."""

    uid: str
    type: str
    reason: str
    probe: str


class EventSource(NamedTuple):
    """The component that reports an event, and its host: core/v1 EventSource."""

    component: str
    host: str


class EventSeries(msgspec.Struct, eq=False):
    """Aggregated occurrences of one event.

    `created` is True once the Event `name` exists on the server. `pending` is True while the series waits
    to be written or is being written.
    """

    key: SeriesKey
    involved: ObjectReference
    name: str
    container: str
    first_at: datetime
    last_at: datetime
    budget: TokenBucket
    message: str = ""
    created: bool = False
    count: int = 0
    tries: int = 0
    pending: bool = False

    def record(self, message: str, at: datetime) -> None:
        self.count += 1
        self.last_at = at
        self.message = message

    def encode_event(self, source: EventSource) -> bytes:
        """Encode the whole Event with its count, so that it can also replace an expired Event."""
        involved = {
            "apiVersion": self.involved.api_version,
            "kind": self.involved.kind,
            "namespace": self.involved.namespace,
            "name": self.involved.name,
            "uid": self.involved.uid,
        }
        if self.container:
            involved["fieldPath"] = f"spec.containers{{{self.container}}}"
        return msgspec.json.encode(
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": self.name, "namespace": self.involved.event_namespace},
                "involvedObject": involved,
                "reason": self.key.reason,
                "type": self.key.type,
                "message": self.message,
                "source": {"component": source.component, "host": source.host},
                "reportingComponent": source.component,
                "reportingInstance": source.host,
                "count": self.count,
                "firstTimestamp": format_time(self.first_at),
                "lastTimestamp": format_time(self.last_at),
            }
        )

    def encode_patch(self) -> bytes:
        """Encode a merge patch for later occurrences. Its values are absolute, so it is idempotent."""
        return msgspec.json.encode(
            {
                "count": self.count,
                "lastTimestamp": format_time(self.last_at),
                "message": self.message,
            }
        )


def event_name(involved: str, at: datetime, order: int) -> str:
    """Return `<object>.<hex>`, unique in a process and at most `MAX_NAME_LENGTH` long."""
    suffix = f".{int(at.timestamp() * 1_000_000):x}{order & 0xFFFF:04x}"
    return involved[: MAX_NAME_LENGTH - len(suffix)].rstrip(".-") + suffix
