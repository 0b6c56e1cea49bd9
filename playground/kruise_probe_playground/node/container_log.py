"""The log of one container: its newest lines in memory.

Source: kubelet pkg/kubelet/kuberuntime/logs (ReadLogs); containerd's CRI logger, which cuts long lines.
Differs: no files and no rotation: the oldest lines are dropped; stdout and stderr are one stream.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from itertools import islice

from kruise_probe_playground.node.processes import Output

MAX_LOG_BYTES = 512 * 1024
LINE_OVERHEAD_BYTES = 128
"""What a line costs beside its text, so that empty lines are bounded, too."""

MAX_LINE_BYTES = 16 * 1024
"""A longer line is stored in pieces, as in containerd."""


class ContainerLog(Output):
    """Bounded in bytes; the oldest lines are dropped."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: deque[bytes] = deque()
        self._bytes = 0
        self._dropped = 0
        self._unfinished = b""
        self._changed = asyncio.Event()

    def take(self, chunk: bytes) -> None:
        *lines, rest = (self._unfinished + chunk).split(b"\n")
        for line in lines:
            self._add(line + b"\n")
        whole = len(rest) // MAX_LINE_BYTES * MAX_LINE_BYTES
        self._add(rest[:whole])
        self._unfinished = rest[whole:]
        self._wake_readers()

    def close(self) -> None:
        super().close()
        self._add(self._unfinished)
        self._unfinished = b""
        self._wake_readers()

    def _add(self, text: bytes) -> None:
        for start in range(0, len(text), MAX_LINE_BYTES):
            piece = text[start : start + MAX_LINE_BYTES]
            self._lines.append(piece)
            self._bytes += LINE_OVERHEAD_BYTES + len(piece)
        while self._bytes > MAX_LOG_BYTES:
            self._bytes -= LINE_OVERHEAD_BYTES + len(self._lines.popleft())
            self._dropped += 1

    def _wake_readers(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def last_line(self) -> str:
        """The last line that is not blank."""
        for line in reversed(self._lines):
            if text := line.decode(errors="replace").strip():
                return text
        return ""

    async def read(
        self, *, follow: bool = False, tail_lines: int | None = None
    ) -> AsyncIterator[bytes]:
        """The last lines, or all; with `follow`, also new ones until the container has ended."""
        count = self._dropped + len(self._lines)
        position = 0 if tail_lines is None else count - tail_lines
        while True:
            changed = self._changed
            ended = self.finished.is_set()
            lines = list(
                islice(
                    self._lines,
                    max(position - self._dropped, 0),
                    None,
                )
            )
            position = self._dropped + len(self._lines)
            if lines:
                yield b"".join(lines)
            if ended or not follow:
                return
            await changed.wait()
