"""Processes that end by themselves, by signals, and with tasks and threads that hang; on real time."""

import asyncio
import gc
import io
import signal
import sys
import threading
import weakref
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from itertools import count
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict
from support.cases import cases

from kruise_probe.api.errors import FatalError
from kruise_probe.runtime import process
from kruise_probe.runtime.process import LongRuns, run_until_signalled, tune_garbage_collector


class Unflushed(io.TextIOWrapper):
    """A text file that shows only what was flushed."""

    def __init__(self) -> None:
        self.file = io.BytesIO()
        super().__init__(self.file)


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The exit of the process raises SystemExit."""
    monkeypatch.setattr(process, "os", SimpleNamespace(_exit=sys.exit))
    thresholds = gc.get_threshold()
    callbacks = gc.callbacks[:]
    tls_buffer = SSLProtocol.max_size
    on_sigterm = signal.getsignal(signal.SIGTERM)
    on_sigint = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGTERM, on_sigterm)
    signal.signal(signal.SIGINT, on_sigint)
    gc.set_threshold(*thresholds)
    gc.callbacks[:] = callbacks
    gc.unfreeze()
    SSLProtocol.max_size = tls_buffer


def run(main: Coroutine[Any, Any, None]) -> None:
    run_until_signalled(main, program="test")


def logged(main: Coroutine[Any, Any, None]) -> list[EventDict]:
    """Run `main` and return its log records."""
    with capture_logs() as logs:
        run(main)
    return list(logs)


def events(logs: list[EventDict]) -> list[str]:
    return [log["event"] for log in logs]


async def hang() -> None:
    await asyncio.Event().wait()


class Cycle:
    def __init__(self) -> None:
        self.itself = self


def test_main_that_ends_returns() -> None:
    ended: list[bool] = []

    async def main() -> None:
        ended.append(True)

    assert events(logged(main())) == ["stopped"]
    assert ended
    assert gc.get_threshold()[0] == 2_000
    assert SSLProtocol.max_size == 32 * 1024


@cases(
    "error raised",
    fatal=(FatalError("port taken"), FatalError),
    in_a_group=(ExceptionGroup("", [FatalError("port taken")]), FatalError),
    group=(ExceptionGroup("port taken", [KeyError("x")]), ExceptionGroup),
    other=(ValueError("port taken"), ValueError),
    cancelled=(asyncio.CancelledError("port taken"), asyncio.CancelledError),
)
def test_error_of_main_is_raised(error: BaseException, raised: type[BaseException]) -> None:
    async def main() -> None:
        raise error

    with pytest.raises(raised, match="port taken"):
        run(main())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_cancels_main(number: signal.Signals) -> None:
    async def main() -> None:
        signal.raise_signal(number)
        await hang()

    logs = logged(main())
    assert events(logs) == ["stopping", "stopped"]
    assert logs[0]["signal"] == number.name


@cases(
    "first second code",
    sigterm_twice=(signal.SIGTERM, signal.SIGTERM, None),
    sigterm_after_sigint=(signal.SIGINT, signal.SIGTERM, None),
    sigint_after_sigterm=(signal.SIGTERM, signal.SIGINT, 130),
    sigint_twice=(signal.SIGINT, signal.SIGINT, 130),
)
def test_only_a_second_sigint_interrupts_the_release(
    first: signal.Signals, second: signal.Signals, code: int | None
) -> None:
    released: list[str] = []

    async def main() -> None:
        signal.raise_signal(first)
        try:
            await hang()
        finally:
            signal.raise_signal(second)
            await asyncio.sleep(0.05)
            released.append("lease")

    if code is None:
        run(main())
    else:
        with pytest.raises(SystemExit) as exited:
            run(main())
        assert exited.value.code == code
    assert released == ["lease"] * (code is None)


def test_an_error_during_the_stop_is_logged() -> None:
    async def main() -> None:
        async with asyncio.TaskGroup():
            signal.raise_signal(signal.SIGTERM)
            try:
                await hang()
            finally:
                raise OSError("disk full")

    logs = logged(main())
    assert events(logs) == ["stopping", "failed while stopping", "stopped"]
    assert logs[1]["error"] == "OSError('disk full')"


def test_c13_process_exits_after_the_grace_period_if_tasks_hang(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert 4 < process.GRACE_SECONDS < 5, "the documented limit"
    monkeypatch.setattr(process, "GRACE_SECONDS", 0.05)

    async def main() -> None:
        signal.raise_signal(signal.SIGTERM)
        with suppress(asyncio.CancelledError):
            await hang()
        await hang()

    with capture_logs() as logs, pytest.raises(SystemExit) as exited:
        run(main())
    assert exited.value.code == 0
    assert events(logs) == ["stopping", "ended with work left"]


LEFT: list[asyncio.Task[bool]] = []
GO_ON = threading.Event()


def leave_task() -> None:
    LEFT.append(asyncio.create_task(asyncio.Event().wait()))


def leave_thread() -> None:
    """As a lookup of a host name that hangs, for five seconds."""
    GO_ON.clear()
    _ = asyncio.get_running_loop().run_in_executor(None, GO_ON.wait, 5.0)


@cases("leave", task=leave_task, thread=leave_thread)
@cases(
    "error code message",
    end=(None, 0, b""),
    failure=(FatalError("port taken"), 1, b"test: port taken\n"),
)
def test_process_exits_if_main_leaves_a_task_or_a_thread(
    leave: Callable[[], None],
    error: Exception | None,
    code: int,
    message: bytes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The exit skips the interpreter's own flush."""
    output = Unflushed()
    errors = Unflushed()
    monkeypatch.setattr(sys, "stdout", output)
    monkeypatch.setattr(sys, "stderr", errors)

    async def main() -> None:
        leave()
        sys.stdout.write("result\n")
        if error:
            raise error

    def exit(code: int) -> NoReturn:
        GO_ON.set()
        sys.exit(code)

    monkeypatch.setattr(process, "os", SimpleNamespace(_exit=exit))
    with capture_logs(), pytest.raises(SystemExit) as exited:
        run(main())
    assert exited.value.code == code
    assert output.file.getvalue() == b"result\n"
    assert errors.file.getvalue() == message


def test_objects_from_before_the_start_are_not_scanned_again() -> None:
    garbage = weakref.ref(Cycle())
    gc.disable()
    tune_garbage_collector()
    gc.enable()
    assert garbage() is None, "garbage is not kept forever"
    assert gc.get_freeze_count() > 0
    assert gc.get_threshold() == (2_000, 2, 0)


@cases(
    "seconds generation frozen",
    long=(0.02, 2, True),
    short=(0.002, 2, False),
    young=(0.02, 1, False),
)
def test_what_a_long_run_of_the_collector_leaves_is_not_scanned_again(
    seconds: float, generation: int, frozen: bool
) -> None:
    clock = iter([0.0, seconds])
    gc.callbacks.append(LongRuns(lambda: next(clock)))
    before = gc.get_freeze_count()
    gc.collect(generation)
    assert (gc.get_freeze_count() > before) is frozen


def test_cycles_among_frozen_objects_are_collected_after_many_long_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "FREEZES", 3)
    gc.callbacks.append(LongRuns(count().__next__))
    connection: Cycle | None = Cycle()
    left = weakref.ref(connection)
    gc.collect()
    connection = None
    gc.collect()
    assert left() is not None
    gc.collect()
    gc.collect()
    assert left() is None


def test_the_collector_has_the_callback_for_long_runs() -> None:
    tune_garbage_collector()
    assert any(isinstance(callback, LongRuns) for callback in gc.callbacks)
