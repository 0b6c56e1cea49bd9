"""One end of a TCP connection without a socket; the test plays the other end."""

import asyncio

PAUSE_BYTES = 64 * 1024
"""The high-water mark of asyncio's transports."""


class FakeTransport(asyncio.Transport):
    """Behaves like a selector event loop's transport; with `stuck` the other side reads nothing."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        self.written = b""
        self.buffered = b""
        self.stuck = False
        self.reading = True
        self.closing = False
        self.lost = False
        protocol.connection_made(self)

    # The other side.

    def receive(self, data: bytes) -> None:
        """Delivers data unless reading is paused."""
        if not self.closing and self.reading:
            self._protocol.data_received(data)

    def receive_eof(self) -> None:
        if not self.closing and not self._protocol.eof_received():
            self.close()

    def take(self) -> bytes:
        """Returns what was written since the last call."""
        taken = self.written
        self.written = b""
        return taken

    def drain(self) -> None:
        """The other side reads the buffered data."""
        self.stuck = False
        self.written += self.buffered
        self.buffered = b""
        self._protocol.resume_writing()
        if self.closing:
            self._lose(None)

    # What protocols use.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self.lost:
            return
        if not self.stuck:
            self.written += bytes(data)
            return
        self.buffered += bytes(data)
        if len(self.buffered) > PAUSE_BYTES:
            self._protocol.pause_writing()

    def get_write_buffer_size(self) -> int:
        return len(self.buffered)

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        if not self.closing:
            self.closing = True
            if not self.buffered:
                self._loop.call_soon(self._lose, None)

    def abort(self, error: Exception | None = None) -> None:
        self.closing = True
        self.buffered = b""
        self._loop.call_soon(self._lose, error)

    def _lose(self, error: Exception | None) -> None:
        if not self.lost:
            self.lost = True
            self._protocol.connection_lost(error)


class OneRead:
    """A stream whose first read has all data."""

    def __init__(self, data: bytes) -> None:
        self._chunks = [data, b""]
        self.written: list[bytes] = []

    async def read_chunk(self, *, deadline_seconds: float) -> bytes:
        return self._chunks.pop(0)

    def write(self, data: bytes) -> None:
        self.written.append(data)
