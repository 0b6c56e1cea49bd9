"""A watch as an async iterator of typed events.

Source: client-go rest/watch/decoder.go and tools/cache/reflector.go (errors that end a watch).
Differs: no data within the read deadline is an error here; the caller need not detect it.
"""

import asyncio
from collections import deque
from typing import Final, Generic, Self, TypeVar

from kruise_probe.api.errors import ConnectionFailed
from kruise_probe.api.resources import DECODE_ERRORS, KubeObject, Resource
from kruise_probe.api.watching import WatchEvent
from kruise_probe.client.frames import LineSplitter, decode_frame
from kruise_probe.client.request import Request
from kruise_probe.client.transport import ConnectionBroken, Stream

T = TypeVar("T", bound=KubeObject)

EVENTS_AT_ONCE: Final = 32
"""Events after which the iterator yields to the event loop: one socket read may have thousands."""


class WatchStream(Generic[T]):
    """Yields the events of one watch until the server ends it. Iterate it only once."""

    def __init__(
        self,
        stream: Stream,
        resource: Resource[T],
        request: Request,
        *,
        read_deadline_seconds: float,
    ) -> None:
        self._stream = stream
        self._resource = resource
        self._request = request
        self._read_deadline_seconds = read_deadline_seconds
        self._splitter = LineSplitter()
        self._lines: deque[bytes] = deque()
        self._events_in_a_row = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> WatchEvent[T]:
        if self._events_in_a_row >= EVENTS_AT_ONCE:
            self._events_in_a_row = 0
            await asyncio.sleep(0)
        while not self._lines:
            await self._read()
        self._events_in_a_row += 1
        try:
            return decode_frame(self._resource, self._lines.popleft(), request=str(self._request))
        except DECODE_ERRORS as error:
            raise ConnectionFailed(f"{self._request}: no watch event: {error}") from error

    async def _read(self) -> None:
        chunk = await self._stream.read_chunk(deadline_seconds=self._read_deadline_seconds)
        if not chunk:
            if self._splitter.incomplete:
                raise ConnectionBroken(f"{self._request}: ended in the middle of an event")
            raise StopAsyncIteration
        try:
            self._lines.extend(self._splitter.feed(chunk))
        except ValueError as error:
            raise ConnectionFailed(f"{self._request}: {error}") from error
