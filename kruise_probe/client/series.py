"""One series of events: what it counts, how often it may be written, and the bytes of it. Pure.

Source: client-go tools/record/events_cache.go and util/eventutil.go (names).
Differs: the message is no part of what makes a series; over budget means later, not never.
"""

from datetime import datetime
from typing import NamedTuple

import msgspec

from kruise_probe.api.times import format_time
from kruise_probe.api.token_bucket import TokenBucket

BURST = 25
REFILL_SECONDS = 60.0
"""A series may be written `BURST` times at once, and then once a minute; occurrences in between are summed up."""

MAX_NAME_LENGTH = 253


def new_budget() -> TokenBucket:
    """Permissions to write one series."""
    return TokenBucket(burst=BURST, interval_seconds=REFILL_SECONDS)


class PodRef(NamedTuple):
    """The pod, or other namespaced object, that an event is about."""

    namespace: str
    name: str
    uid: str
    api_version: str = "v1"
    kind: str = "Pod"


class SeriesKey(NamedTuple):
    """What repeats: the same kind of news of the same probe of the same pod."""

    pod_uid: str
    type: str
    reason: str
    probe: str


class Source(NamedTuple):
    """Who reports: the component and, for it, the node."""

    component: str
    host: str


class Series(msgspec.Struct, eq=False):
    """What one probe had to say of one kind so far.

    `created` is True once the server is known to have its Event `name`; `pending` while it waits to be
    written or is being written.
    """

    key: SeriesKey
    pod: PodRef
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

    def occurred(self, message: str, at: datetime) -> None:
        self.count += 1
        self.last_at = at
        self.message = message

    def creation(self, source: Source) -> bytes:
        """The whole Event, count included: also what re-creates one that the server has let expire."""
        involved = {
            "apiVersion": self.pod.api_version,
            "kind": self.pod.kind,
            "namespace": self.pod.namespace,
            "name": self.pod.name,
            "uid": self.pod.uid,
        }
        if self.container:
            involved["fieldPath"] = f"spec.containers{{{self.container}}}"
        return msgspec.json.encode(
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": self.name, "namespace": self.pod.namespace},
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

    def repetition(self) -> bytes:
        """A merge patch of what a repetition changes; absolute values, so sending it twice counts once."""
        return msgspec.json.encode(
            {
                "count": self.count,
                "lastTimestamp": format_time(self.last_at),
                "message": self.message,
            }
        )


def event_name(pod: str, at: datetime, order: int) -> str:
    """`<pod>.<hex>`, unique in a process and never longer than a name may be."""
    suffix = f".{int(at.timestamp() * 1_000_000):x}{order & 0xFFFF:04x}"
    return pod[: MAX_NAME_LENGTH - len(suffix)].rstrip(".-") + suffix
