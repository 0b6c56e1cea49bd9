"""Large writes on slow links: their deadline counts from the last progress, and events wait until they are sent.

An edge node may have 64 kbit/s, and a status 121 KB. A fixed deadline would cut each write, and all would be sent again.
Progress is what the peer has acknowledged. Behind a proxy that is not the API server, so the time that a slow link needs
for the whole body is added then.

Source: none in client-go, whose HTTP/2 connection is closed only if a ping is not answered.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import structlog

from kruise_probe.api.times import loop_time
from kruise_probe.client.connection import HttpConnection
from kruise_probe.client.request import WRITES, Request

_log = structlog.get_logger(__name__)

LARGE_BYTES: Final = 8 * 1024
"""Smaller bodies take a second at most at 64 kbit/s."""

SLOW_BYTES_PER_SECOND: Final = 4 * 1024
"""Half of 64 kbit/s: other requests share the link."""

MAX_WRITE_SECONDS: Final = 60.0
"""Deadline of a large write that makes progress all the time."""

LOOK_SECONDS: Final = 1.0
"""How often progress is measured. A write that takes longer is slow."""


def seconds_left(unsent: int, *, size: int, seconds: float, passed: float) -> float:
    """Return how long to wait for the response after progress.

    Args:
        unsent: bytes that the peer has not acknowledged.
        size: bytes of the whole body.
        seconds: deadline without progress.
        passed: seconds since the write began.
    """
    left = MAX_WRITE_SECONDS - passed
    if not unsent:
        seconds += size / SLOW_BYTES_PER_SECOND  # beyond the peer
    return min(seconds, left)


class Uploads:
    """The large writes of one client.

    `slow`: those in flight that take long.
    """

    def __init__(self) -> None:
        self.slow: set[_Upload] = set()
        self._ended = asyncio.Event()
        self._reported = False

    @contextmanager
    def following(self, request: Request, timeout: asyncio.Timeout) -> Iterator[Request]:
        """Yield the request to send. `timeout` is the deadline of the request; it is extended with progress."""
        upload = _Upload(self, request, timeout)
        try:
            yield request._replace(on_sent=upload.begin)
        finally:
            upload.end()

    async def until_sent(self, request: Request) -> None:
        """Let an event wait for the slow writes that are in flight now. On a busy API server some always are."""
        is_event = request.method in WRITES and "/events" in request.target
        if not is_event:
            return
        ahead = set(self.slow)
        while ahead & self.slow:
            self._ended.clear()
            await self._ended.wait()

    def add(self, upload: "_Upload", size: int) -> None:
        """A write is slow."""
        if not self._reported:
            self._reported = True
            _log.warning(
                "the link to the API server is slow; events wait until the write is sent",
                bytes=size,
            )
        self.slow.add(upload)

    def remove(self, upload: "_Upload") -> None:
        """A write has ended."""
        if upload in self.slow:
            self.slow.remove(upload)
        elif not self.slow:
            self._reported = False
        self._ended.set()


class _Upload:
    """One large write."""

    def __init__(self, uploads: Uploads, request: Request, timeout: asyncio.Timeout) -> None:
        self._uploads = uploads
        body = request.body or b""
        self._size = len(body)
        self._timeout = timeout
        self._seconds = request.deadline_seconds
        self._began_at = loop_time()
        self._unsent = self._size
        self._received = 0
        self._next_look: asyncio.TimerHandle | None = None

    def begin(self, connection: HttpConnection) -> None:
        """Follow the request, which was written to the socket of this connection."""
        self._cancel_look()
        self._unsent = self._size
        self._received = connection.received_bytes
        self._schedule_look(connection)

    def end(self) -> None:
        self._cancel_look()
        self._uploads.remove(self)

    def _cancel_look(self) -> None:
        if self._next_look is not None:
            self._next_look.cancel()

    def _schedule_look(self, connection: HttpConnection) -> None:
        loop = asyncio.get_running_loop()
        self._next_look = loop.call_later(LOOK_SECONDS, self._look, connection)

    def _look(self, connection: HttpConnection) -> None:
        self._uploads.add(self, self._size)
        unsent = connection.unsent_bytes()
        received = connection.received_bytes
        has_progress = unsent < self._unsent or received > self._received
        if has_progress:
            self._unsent = unsent
            self._received = received
            self._extend()
        self._schedule_look(connection)

    def _extend(self) -> None:
        now = loop_time()
        left = seconds_left(
            self._unsent,
            size=self._size,
            seconds=self._seconds,
            passed=now - self._began_at,
        )
        if not self._timeout.expired():
            self._timeout.reschedule(now + left)
