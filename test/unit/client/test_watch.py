import asyncio
from typing import Any, cast

from kruise_probe.api.resources import LEASES
from kruise_probe.client.request import Request
from kruise_probe.client.transport import Stream
from kruise_probe.client.watch import EVENTS_AT_ONCE, WatchStream

BOOKMARK = b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}\n'


class OneChunk:
    """A stream whose only read has everything."""

    def __init__(self, data: bytes) -> None:
        self._chunks = [data, b""]

    async def read_chunk(self, *, deadline_seconds: float) -> bytes:
        return self._chunks.pop(0)


async def test_events_of_one_read_leave_turns_to_others() -> None:
    passes = 0
    ended = False

    def count() -> None:
        nonlocal passes
        passes += 1
        if not ended:
            asyncio.get_running_loop().call_soon(count)

    stream = cast(Stream, OneChunk(BOOKMARK * 100 * EVENTS_AT_ONCE))
    watch: WatchStream[Any] = WatchStream(
        stream, LEASES, Request("GET", "/", "leases"), read_deadline_seconds=1
    )
    count()
    events = [event async for event in watch]
    ended = True

    assert len(events) == 100 * EVENTS_AT_ONCE
    assert passes >= 100
