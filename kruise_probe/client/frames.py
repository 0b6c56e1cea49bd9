"""Decoding of watch events from bytes: line splitting and decoding, without I/O.

Source: apimachinery pkg/watch and client-go rest/watch; KEP-3157 for the bookmark that ends the initial list.
Differs: an object that does not decode is delivered as an event, and does not end the watch.
"""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from kruise_probe.api.errors import Status, error_of
from kruise_probe.api.resources import DECODE_ERRORS, KubeObject, Resource, undecodable_of
from kruise_probe.api.watching import EventType, WatchEvent

T = TypeVar("T", bound=KubeObject)

MAX_LINE_BYTES = 64 * 1024 * 1024
"""Maximum length of a line, far above what the server can store."""

INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class _Frame(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _BookmarkMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    annotations: Mapping[str, str] | None = None


class _Bookmark(msgspec.Struct, frozen=True):
    metadata: _BookmarkMeta = _BookmarkMeta()


_frame_decoder = msgspec.json.Decoder(_Frame)
_bookmark_decoder = msgspec.json.Decoder(_Bookmark)
_status_decoder = msgspec.json.Decoder(Status)
_TYPES = {str(each): each for each in EventType}


class LineSplitter:
    """Splits a stream of chunks into lines. A long line is joined once, not at every chunk."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._pending_bytes = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that `chunk` completes, without newlines and without empty lines.

        Raises:
            ValueError: a line is longer than `MAX_LINE_BYTES`.
        """
        head, newline, rest = chunk.partition(b"\n")
        self._parts.append(head)
        self._pending_bytes += len(head)
        if self._pending_bytes > MAX_LINE_BYTES:
            raise ValueError(f"a line of more than {MAX_LINE_BYTES} bytes")
        if not newline:
            return []
        first = b"".join(self._parts)
        *lines, tail = rest.split(b"\n")
        self._parts = [tail]
        self._pending_bytes = len(tail)
        return [line for line in (first, *lines) if line]

    @property
    def incomplete(self) -> bool:
        """True if the last line has no newline yet."""
        return self._pending_bytes > 0


def decode_frame(resource: Resource[T], line: bytes, *, request: str) -> WatchEvent[T]:
    """Decode one line of a watch.

    Raises:
        ApiError: the line is an ERROR event; Expired for 410.
        DECODE_ERRORS: the line is not a watch event.
    """
    frame = _frame_decoder.decode(line)
    kind = _TYPES.get(frame.type)
    if kind is EventType.BOOKMARK:
        meta = _bookmark_decoder.decode(frame.object).metadata
        ends = (meta.annotations or {}).get(INITIAL_EVENTS_END) == "true"
        return WatchEvent(kind, None, meta.resource_version, initial_events_end=ends)
    if kind is None:
        if frame.type != "ERROR":
            raise msgspec.ValidationError(f"{frame.type!r} is no type of a watch event")
        status = _status_decoder.decode(frame.object)
        raise error_of(status.code or 500, status, request=request)
    try:
        decoded = resource.decode(frame.object)
    except DECODE_ERRORS as error:
        broken = undecodable_of(frame.object, error)
        return WatchEvent(kind, None, broken.resource_version, undecodable=broken)
    return WatchEvent(kind, decoded, decoded.resource_version)
