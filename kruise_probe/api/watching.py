"""One event of a watch, as client and informers share it.

Source: apimachinery pkg/watch and metav1.WatchEvent.
Differs: an ERROR event never arrives as a value; the client raises it as the typed error.
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
    """`object` is None for a BOOKMARK and for an object that did not decode (then `undecodable` says why).

    `initial_events_end` marks the bookmark that ends the initial list of a streaming list (KEP-3157).
    """

    type: EventType
    object: T | None
    resource_version: str
    initial_events_end: bool = False
    undecodable: Undecodable | None = None
