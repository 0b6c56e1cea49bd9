"""Standard output and error that never block the process: what cannot be written at once is dropped and counted.

While a container runtime is stopped, no process reads the pipe of a container's output, and a write to a full pipe
blocks. Its O_NONBLOCK is shared with every process that has the pipe, so it stays as it is: each write is preceded by
a poll, and has at most as many bytes as a pipe that is ready takes at once.
"""

import faulthandler
import io
import os
import select
import stat
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO, Final, TextIO, cast

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

AT_ONCE_BYTES: Final = 4096
"""PIPE_BUF of Linux."""


class UnblockedFile(io.RawIOBase):
    """A file for writing. A write returns at once, and drops what the other side has no room for."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        self._lock = threading.Lock()
        self._dropped_lines = 0
        self._in_line = False
        """True if the last line was written in part."""

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def write(self, data: "ReadableBuffer") -> int:
        """Write what can be written at once. Return the size of `data` in any case."""
        content = bytes(data)
        with self._lock:
            rest = content
            if self._in_line:
                rest = b"\n" + content
            rest = self._write_some(rest)
            self._in_line = bool(rest) and len(rest) < len(content)
            if rest:
                self._dropped_lines += max(rest.count(b"\n"), 1)
        return len(content)

    def take_dropped_lines(self) -> int:
        """Return the number of dropped lines, and start again; 0 while nothing can be written."""
        with self._lock:
            if not self._dropped_lines or not self._is_ready():
                return 0
            dropped = self._dropped_lines
            self._dropped_lines = 0
            return dropped

    def _write_some(self, data: bytes) -> bytes:
        """Return the rest that could not be written."""
        with suppress(OSError):
            while data and self._is_ready():
                written = os.write(self._descriptor, data[:AT_ONCE_BYTES])
                data = data[written:]
        return data

    def _is_ready(self) -> bool:
        return bool(self._poll.poll(0))


def unblock_output() -> None:
    """Replace `sys.stdout` and `sys.stderr`, unless a test has replaced them already. Also for tracebacks and warnings."""
    if sys.__stdout__ is not None and sys.stdout is sys.__stdout__:
        sys.stdout = _unblocked(sys.__stdout__)
    if sys.__stderr__ is not None and sys.stderr is sys.__stderr__:
        sys.stderr = _unblocked(sys.__stderr__)
        _unblock_faulthandler()


def _unblocked(stream: TextIO) -> TextIO:
    stream.flush()
    raw = UnblockedFile(stream.fileno())
    # Without a buffer in between, each write is written or dropped as a whole.
    return io.TextIOWrapper(
        cast(BinaryIO, raw),
        encoding=stream.encoding,
        errors=stream.errors,
        write_through=True,
    )


def _unblock_faulthandler() -> None:
    """Let the handler of crashes write to the same pipe, but not wait for it. That needs a descriptor of its own."""
    descriptor = sys.stderr.fileno()
    if faulthandler.is_enabled() and stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        with suppress(OSError):
            faulthandler.enable(os.open(f"/dev/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK))


def dropped_lines(stream: object) -> int:
    """The number of lines that a stream has dropped since the last call, once it can be written to again."""
    raw = getattr(stream, "buffer", None)
    if not isinstance(raw, UnblockedFile):
        return 0
    return raw.take_dropped_lines()
