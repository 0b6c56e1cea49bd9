"""Runs the main task of a process until it ends, fails or gets a signal. And its log: text, key=value lines, or JSON.

SIGTERM and SIGINT cancel the main task, which shuts down gracefully. After `GRACE_SECONDS` the process exits even if
tasks are left, so that a hung call never exceeds the termination grace period.

All records use one processor chain, also those of libraries that use the standard `logging`. It redacts values of keys
with secret names, and bearer tokens in any value.

Source: controller-runtime pkg/manager/signals; kopf's `ultimate_exiting_timeout` for the hard end;
controller-runtime TMP-LOGGING.md for what is logged (constant messages, keys and values).
Differs: only a second SIGINT exits at once, with 128 + its number, as a second Ctrl-C should. A second SIGTERM is
ignored: supervisors repeat it, and an exit in the middle would not release the Lease.
"""

import asyncio
import asyncio.sslproto
import gc
import logging
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any, Final, NoReturn, TextIO, TypeVar

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from kruise_probe.api.errors import FatalError, first_of
from kruise_probe.runtime.output import dropped_lines

GRACE_SECONDS: Final = 4.5
"""Maximum seconds from the signal to the exit; the documentation promises five."""

COLLECT_AFTER: Final = (2_000, 2, 0)
"""New objects, and then runs of each younger generation, between two runs of the garbage collector. The default of 700 objects is
for small heaps: scanning the caches repeatedly took a quarter of the manager's CPU time. A run holds the event loop for 0.5 µs
an object, twice that on a busy machine: with 80,000 objects it took 32 ms. So the oldest generation is scanned while it is small."""

LONG_RUN_SECONDS: Final = 0.005
"""What a longer run leaves is frozen."""

FREEZES: Final = 1_000
"""After so many long runs, one run scans all objects again. A closed connection leaves some 4 KB in cycles."""

OLDEST_GENERATION: Final = 2

TLS_BUFFER_BYTES: Final = 32 * 1024
"""asyncio's buffer of each TLS connection. Its 256 KiB are 12 MB for fifty connections to the API server, and each read
allocates as much. A TLS record has at most 16 KiB."""

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

T = TypeVar("T")


def run_until_signalled(main: Coroutine[Any, Any, None], *, program: str) -> None:
    """Run `main` on a new event loop until it ends or a signal cancels it.

    If tasks or threads are left, such as a thread in getaddrinfo, the process exits here and this function does not
    return. `program` begins the line on stderr that then reports the failure.

    Raises:
        FatalError: `main` failed for a reason that the user can fix.
    """
    tune_garbage_collector()
    asyncio.sslproto.SSLProtocol.max_size = TLS_BUFFER_BYTES
    threads = frozenset(threading.enumerate())
    signalled: list[signal.Signals] = []

    def on_signal(number: signal.Signals) -> None:
        signalled.append(number)
        if len(signalled) == 1:
            _log.info("stopping", signal=number.name)
            asyncio.get_running_loop().call_later(GRACE_SECONDS, _overdue)
        elif number is signal.SIGINT:
            _exit(128 + number)

    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        try:
            loop.run_until_complete(until_signal(main, _SIGNALS, on_signal))
        except Signalled:
            pass
        except (FatalError, BaseExceptionGroup) as error:
            fatal = first_of(error)
            if signalled:
                _log.warning("failed while stopping", error=repr(fatal))
            elif not isinstance(fatal, FatalError):
                raise
            else:
                _exit_if_hanging(loop, threads, 1, f"{program}: {fatal}")
                raise fatal from None
        _log.info("stopped")
        _exit_if_hanging(loop, threads, 0)


def tune_garbage_collector() -> None:
    """Freeze the objects that imports created, so that the collector never scans them again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)
    gc.callbacks.append(LongRuns(time.thread_time))


class LongRuns:
    """Freezes the objects that a long run of the collector has left, so that later runs do not scan them; see FREEZES.

    With 20,000 pods, a run over all objects takes 0.11 s. A frozen object is freed as soon as nothing refers to it. A cycle of
    frozen objects stays until all objects are scanned again.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began_at = 0.0
        self._freezes = 0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] != OLDEST_GENERATION:
            return
        if phase == "start":
            self._began_at = self._clock()
        elif self._clock() - self._began_at > LONG_RUN_SECONDS:
            self._freezes += 1
            if self._freezes % FREEZES:
                gc.freeze()
            else:
                gc.unfreeze()


def _overdue() -> None:
    _log.warning("ended with work left", grace_seconds=GRACE_SECONDS)
    _exit(0)


def _exit_if_hanging(
    loop: asyncio.AbstractEventLoop,
    earlier: frozenset[threading.Thread],
    code: int,
    message: str = "",
) -> None:
    """Exit if tasks are left, or threads that the interpreter would wait for."""
    tasks = any(not task.done() for task in asyncio.all_tasks(loop))
    if tasks or any(not thread.daemon for thread in set(threading.enumerate()) - earlier):
        if message:
            sys.stderr.write(f"{message}\n")
        _exit(code)


def _exit(code: int) -> NoReturn:
    """Exit now; hung threads would block a normal interpreter exit."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


HANGUP: Final = 1
"""Number of SIGHUP, which Windows does not have."""
_ENDS: Final = ("SIGINT", "SIGTERM", "SIGHUP")


class Signalled(Exception):
    """The work was cancelled by the signal `number`, and has ended."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by signal {number}")
        self.number = number


async def until_signal(
    work: Coroutine[Any, Any, T],
    signals: Iterable[signal.Signals] | None = None,
    on_signal: Callable[[signal.Signals], object] = lambda number: None,
) -> T:
    """Run `work`. The first of the signals cancels it, by default SIGINT, SIGTERM or SIGHUP. `on_signal` is called with each.

    Raises:
        Signalled: a signal cancelled `work`.
    """
    task = asyncio.current_task()
    assert task is not None, "a coroutine runs in a task"
    caught: list[signal.Signals] = []

    def catch(number: signal.Signals) -> None:
        if not caught:
            task.cancel()
        caught.append(number)
        on_signal(number)

    if signals is None:
        signals = [getattr(signal, name) for name in _ENDS if hasattr(signal, name)]
    loop = asyncio.get_running_loop()
    for number in signals:
        with suppress(NotImplementedError):  # on Windows, where Ctrl-C interrupts the loop
            loop.add_signal_handler(number, catch, number)
    try:
        return await work
    except asyncio.CancelledError:
        if caught and not task.uncancel():
            raise Signalled(caught[0]) from None
        raise


LEVELS: Final = ("debug", "info", "warning", "error")
FORMATS: Final = ("text", "json")

_SECRET_NAMES = re.compile(
    r"(?i)(^|_)(token|password|secret|authorization|private_key|client_key)$"
)
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}")
_REDACTED = "[redacted]"


def configure_logs(*, format: str, level: str) -> None:
    """Log to standard error, by structlog and the standard logging. Call once, before the first log record.

    Args:
        format: one of `FORMATS`. Text is coloured and aligned on a terminal, key=value elsewhere.
        level: one of `LEVELS`.
    """
    threshold = logging.getLevelNamesMapping()[level.upper()]
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = _LogHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                redact,
                _renderer(format),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(threshold)
    for chatty in ("asyncio", "aiohttp.access", "grpc", "urllib3"):
        logging.getLogger(chatty).setLevel(max(threshold, logging.WARNING))


class _LogHandler(logging.StreamHandler[TextIO]):
    """Writes records to a stream, and how many lines it has dropped."""

    def emit(self, record: logging.LogRecord) -> None:
        dropped = dropped_lines(self.stream)
        if dropped:
            text = f"{dropped} lines of the log were dropped, because the output was full"
            super().emit(logging.LogRecord(__name__, logging.WARNING, "", 0, text, (), None))
        super().emit(record)


def _renderer(format: str) -> Processor:
    if format == "json":
        return structlog.processors.JSONRenderer()
    if sys.stderr.isatty():
        return structlog.dev.ConsoleRenderer(
            timestamp_key="time", exception_formatter=structlog.dev.plain_traceback
        )
    return structlog.processors.LogfmtRenderer(key_order=["time", "level", "event"])


def redact(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    for key, value in event.items():
        if _SECRET_NAMES.search(key):
            event[key] = _REDACTED
        elif isinstance(value, str):
            event[key] = _BEARER.sub(rf"\1 {_REDACTED}", value)
    return event
