"""A deterministic event loop: virtual time, permuted task steps, and processes that can be paused.

One loop runs all processes of a simulation. A process is a context: every task and callback that it starts inherits the
context variable `PROCESS`. asyncio guarantees the order of `call_soon` callbacks, so only steps of tasks are permuted.

Source: FoundationDB's simulator (Sim2), TigerBeetle's VOPR.
Differs: `detangle` 0.1 does the same with 6,000 lines. Its loop records the frames of every step, its shrinker removes
scheduling choices and not faults, and it knows no kill or pause of a group of tasks.
"""

import asyncio
import heapq
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar
from random import Random
from typing import Any, TypeVarTuple, Unpack

import structlog

PROCESS: ContextVar[str] = ContextVar("PROCESS", default="world")
"""The name of the running process; `world` is everything outside of the product."""

Ts = TypeVarTuple("Ts")

_RESOLUTION_SECONDS = 1e-9


class Deadlock(Exception):
    """Nothing is ready and no timer is set."""


class SimulatedTask(asyncio.Task[Any]):
    """Hashed by a serial number, so that sets of tasks have the same order in every run."""

    created = 0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        SimulatedTask.created += 1
        self.serial = SimulatedTask.created
        super().__init__(*arguments, **options)

    def __hash__(self) -> int:
        return self.serial


class SimulatedLoop(asyncio.BaseEventLoop):
    """Runs until its main task ends.

    Attributes:
        steps: number of callbacks that ran.
        step_seconds: how long each of them takes.
        errors: what asyncio reports as unhandled, and what the product logs as an error.
        note: called with the process and the text of each log line of the product.
    """

    def __init__(self, random: Random) -> None:
        super().__init__()
        SimulatedTask.created = 0
        self.steps = 0
        self.step_seconds = 0.0
        self.errors: list[str] = []
        self.note: Callable[[str, str], None] = lambda process, event: None
        self._random = random
        self._now = 0.0
        self._ready: deque[asyncio.Handle]
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timers_set = 0
        self._paused: dict[str, list[asyncio.Handle]] = {}
        self.set_task_factory(_task_of)  # type: ignore[arg-type]
        self.set_exception_handler(_record_error)

    def time(self) -> float:
        return self._now

    def pause(self, process: str) -> None:
        """Stop running the callbacks of `process`, as SIGSTOP."""
        self._paused.setdefault(process, [])

    def is_paused(self, process: str) -> bool:
        return process in self._paused

    def resume(self, process: str) -> None:
        self._ready.extend(self._paused.pop(process, ()))

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(
            when,
            callback,
            args,
            self,
            context,
        )
        timer._scheduled = True  # type: ignore[attr-defined]
        self._timers_set += 1
        heapq.heappush(self._timers, (when, self._timers_set, timer))
        return timer

    def _run_once(self) -> None:
        self._pop_due_timers()
        batch = list(self._ready)
        self._ready.clear()
        if len(batch) > 1:
            _permute_steps(batch, self._random)
        paused = self._paused
        for handle in batch:
            if handle.cancelled():
                continue
            if paused and (held := paused.get(_context(handle).get(PROCESS, "world"))) is not None:
                held.append(handle)
                continue
            self.steps += 1
            handle._run()
            self._now += self.step_seconds

    def _pop_due_timers(self) -> None:
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        if not self._ready:
            if not timers:
                raise Deadlock
            self._now = max(self._now, timers[0][0])
        until = self._now + _RESOLUTION_SECONDS
        while timers and timers[0][0] <= until:
            timer = heapq.heappop(timers)[2]
            timer._scheduled = False  # type: ignore[attr-defined]
            self._ready.append(timer)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled timers are dropped when they are due."""

    def _write_to_self(self) -> None:
        assert asyncio._get_running_loop() is self, "a simulation has no threads"

    def _process_events(self, event_list: object) -> None:
        raise AssertionError("a simulation has no sockets")


def _task_of(
    loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any
) -> SimulatedTask:
    return SimulatedTask(coroutine, loop=loop, **options)


def _record_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    assert isinstance(loop, SimulatedLoop)
    loop.errors.append(f"{context['message']}: {context.get('exception')!r}")


def _context(handle: asyncio.Handle) -> Context:
    context: Context = handle._context  # type: ignore[attr-defined]
    return context


def _permute_steps(batch: list[asyncio.Handle], random: Random) -> None:
    """Shuffle the steps of tasks; every other callback keeps its place."""
    places = [
        place
        for place, handle in enumerate(batch)
        if type(getattr(handle._callback, "__self__", None)) is SimulatedTask  # type: ignore[attr-defined]
    ]
    if len(places) > 1:
        steps = [batch[place] for place in places]
        random.shuffle(steps)
        for place, step in zip(places, steps, strict=True):
            batch[place] = step


def capture_logs() -> None:
    """Send the log of the product to the running `SimulatedLoop`, from level info on; drop it outside of one."""
    structlog.configure(
        processors=[_note], wrapper_class=structlog.make_filtering_bound_logger(logging.INFO)
    )


def _note(_: object, method: str, event: structlog.typing.EventDict) -> str:
    loop = asyncio._get_running_loop()
    if isinstance(loop, SimulatedLoop):
        more = " ".join(f"{key}={value}" for key, value in event.items() if key != "event")
        line = f"{method}: {event['event']} {more}"
        loop.note(PROCESS.get(), line)
        if method in ("error", "exception", "critical"):
            loop.errors.append(line)
    raise structlog.DropEvent
