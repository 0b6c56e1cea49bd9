"""A process of ours: from the command line to its end, by signal or by failure.

SIGTERM and SIGINT cancel the main task, which ends in order; whatever has not ended by then is left behind with
the process itself, so that a hung call never makes anybody wait longer than a termination grace.

Source: controller-runtime pkg/manager/signals; kopf's `ultimate_exiting_timeout` for the hard end.
Differs: a second signal ends at once with 128 + its number, as a shell expects.
"""

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Coroutine
from typing import Any, Final, NoReturn

import structlog

from kruise_probe.api.errors import FatalError
from kruise_probe.cli.failures import first_of

GRACE_SECONDS: Final = 4.5
"""From the signal to the end: users are promised five."""

COLLECT_AFTER: Final = 10_000
"""New objects between two runs of the garbage collector. Its default of 700 is for small heaps: a cache of pods or
a thousand probes live for hours, and looking through them again and again took a quarter of the manager's time."""

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


def run_until_signalled(main: Coroutine[Any, Any, None]) -> None:
    """Runs `main` on a new event loop until it ends, or a signal has cancelled it.

    Does not return when tasks were left behind: then the process ends here.

    Raises:
        FatalError: `main` failed for a reason that a person can do something about.
    """
    tune_garbage_collector()
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        task = loop.create_task(main, name="main")
        stopping = _Stopping(task)
        for number in _SIGNALS:
            loop.add_signal_handler(number, stopping.on_signal, number)
        try:
            loop.run_until_complete(task)
        except asyncio.CancelledError:
            if not stopping.signalled:
                raise
        except (FatalError, BaseExceptionGroup) as error:
            fatal = first_of(error)
            if not isinstance(fatal, FatalError):
                raise
            _leave_if_hanging(loop, 1, str(fatal))
            raise fatal from None
        _log.info("stopped")
        _leave_if_hanging(loop, 0)


def tune_garbage_collector() -> None:
    """What the imports made stays until the end: it is not looked at again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, 20, 50)


class _Stopping:
    def __init__(self, task: asyncio.Task[None]) -> None:
        self._task = task
        self.signalled = False

    def on_signal(self, number: signal.Signals) -> None:
        if self.signalled:
            _leave(128 + number)
        self.signalled = True
        _log.info("stopping", signal=number.name)
        self._task.cancel()
        asyncio.get_running_loop().call_later(GRACE_SECONDS, self._overdue)

    def _overdue(self) -> None:
        _log.warning("ended with work left", grace_seconds=GRACE_SECONDS)
        _leave(0)


def _leave_if_hanging(loop: asyncio.AbstractEventLoop, code: int, told: str = "") -> None:
    if any(not task.done() for task in asyncio.all_tasks(loop)):
        if told:
            print(f"kruise-probe: {told}", file=sys.stderr)
        _leave(code)


def _leave(code: int) -> NoReturn:
    """Ends now: what hangs would keep the interpreter from ending in order."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
