"""A watch as an async iterator of typed events.

Source: client-go rest/watch/decoder.go, tools/cache/reflector.go (errors that end a watch); KEP-3157 for the end of the
initial list.
Differs: no data within the read deadline is an error. An object that does not decode is an event, and does not end the
watch.
"""

import asyncio
from collections import deque
from collections.abc import Generator
from typing import Final, Generic, Self, TypeVar

import msgspec

from kruise_probe.api.errors import ConnectionFailed, Status, error_of
from kruise_probe.api.meta import (
    DECODE_ERRORS,
    ApiObject,
    EventType,
    KubeObject,
    Resource,
    WatchEvent,
    decode_deep,
    run_steps,
    undecodable_of,
)
from kruise_probe.client.connection import MAX_BODY_BYTES, ConnectionBroken
from kruise_probe.client.request import Request
from kruise_probe.client.transport import ResponseStream

T = TypeVar("T", bound=KubeObject)

READ_DEADLINE_SECONDS = 70.0
"""Longest wait of a watch for data. A healthy server sends at least a bookmark every minute."""

EVENTS_AT_ONCE: Final = 32
"""Events after which the iterator yields to the event loop: one socket read may have thousands."""

INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


_event_decoder = msgspec.json.Decoder(_Event)
_bookmark_decoder = msgspec.json.Decoder(ApiObject)
_status_decoder = msgspec.json.Decoder(Status)
_TYPES = {str(known): known for known in EventType}


class WatchStream(Generic[T]):
    """Yields the events of one watch until the server ends it. Iterate it only once."""

    def __init__(self, stream: ResponseStream, resource: Resource[T], request: Request) -> None:
        self._stream = stream
        self._resource = resource
        self._request = request
        self._incomplete = bytearray()
        self._lines: deque[bytes] = deque()
        self._events_in_a_row = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> WatchEvent[T]:
        if self._events_in_a_row >= EVENTS_AT_ONCE:
            self._events_in_a_row = 0
            await asyncio.sleep(0)
        while not self._lines:
            chunk = await self._stream.read_chunk(deadline_seconds=READ_DEADLINE_SECONDS)
            self._split(chunk)
        self._events_in_a_row += 1
        try:
            line = self._lines.popleft()
            steps = decode_event(self._resource, line, self._request)
            return await run_steps(steps)
        except DECODE_ERRORS as error:
            raise ConnectionFailed(
                f"{self._request}: the server sent an invalid watch event: {error}"
            ) from error

    def _split(self, chunk: bytes) -> None:
        """Add the lines that `chunk` completes; an empty chunk is the end."""
        if not chunk:
            if self._incomplete:
                raise ConnectionBroken(
                    f"{self._request}: the watch ended in the middle of an event"
                )
            raise StopAsyncIteration
        head, newline, rest = chunk.partition(b"\n")
        self._incomplete += head
        if len(self._incomplete) > MAX_BODY_BYTES:
            raise ConnectionFailed(f"{self._request}: an event exceeds {MAX_BODY_BYTES} bytes")
        if not newline:
            return
        first = bytes(self._incomplete)
        *lines, tail = rest.split(b"\n")
        not_empty = filter(None, (first, *lines))
        self._lines.extend(not_empty)
        self._incomplete = bytearray(tail)


def decode_event(
    resource: Resource[T],
    line: bytes,
    request: Request | str,
) -> Generator[None, None, WatchEvent[T]]:
    """Decode one line of a watch, in steps.

    Raises:
        ApiError: the line is an ERROR event; Expired for 410.
        DECODE_ERRORS: the line is not a watch event.
    """
    event = yield from decode_deep(_event_decoder.decode, line)
    kind = _TYPES.get(event.type)
    if kind is EventType.BOOKMARK:
        bookmark = _bookmark_decoder.decode(event.object)
        ends = bookmark.metadata.annotations.get(INITIAL_EVENTS_END) == "true"
        version = bookmark.resource_version
        return WatchEvent(kind, None, version, initial_events_end=ends)
    if kind is None:
        if event.type != "ERROR":
            raise msgspec.ValidationError(f"unknown event type {event.type!r}")
        status = _status_decoder.decode(event.object)
        code = status.code or 500
        raise error_of(code, status, request=str(request))
    try:
        decoded = resource.decode(event.object)
    except DECODE_ERRORS as error:
        broken = yield from undecodable_of(event.object, error)
        version = broken.resource_version
        return WatchEvent(kind, None, version, undecodable=broken)
    return WatchEvent(kind, decoded, decoded.resource_version)
