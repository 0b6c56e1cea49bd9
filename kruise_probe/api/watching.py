"""Watch events, as passed from the client to informers.

Source: apimachinery pkg/watch and metav1.WatchEvent.
Differs: there is no ERROR event; the client raises it as a typed error.
"""

from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

from kruise_probe.api.resources import Undecodable

T = TypeVar("T")


class EventType(StrEnum):
    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


class WatchEvent(NamedTuple, Generic[T]):
    """A watch event. `object` is None for a BOOKMARK and for an object that did not decode (see `undecodable`).

    `initial_events_end` marks the bookmark that ends the initial list of a streaming list (KEP-3157).
    """

    type: EventType
    object: T | None
    resource_version: str
    initial_events_end: bool = False
    undecodable: Undecodable | None = None
