"""All commands in containers pass here: never too many at once, and none twice.

A call to the runtime costs the node some 20 ms of CPU, and each one that hangs keeps a process, so there is a
cap on calls in flight; whoever comes later waits in order of arrival. Identical commands (container, command,
period) of several probes that meet are one call: it gets the longest timeout among them, each waiter is
judged by its own. Where a call runs on for a longer one, the others start no second, nor judge it again at once.

A command whose time is over has hung, or the whole runtime has: then nobody knows about the command. The runtime is
asked for its version to tell one from the other.

Differs: kubelet has none of this; a hundred probes of a second are a hundred calls at once, and a frozen runtime
fails all of them.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from kruise_probe.daemon.cri.runtime import (
    ExecResult,
    ExecTimeout,
    Runtime,
    RuntimeFailure,
    RuntimeUnavailable,
)

MEETING_SECONDS: Final = 0.005
"""How long a call waits for others of the same tick before it starts."""

SIGN_OF_LIFE_SECONDS: Final = 0.4
"""For the runtime to say its version, once a command's time is over. With the half second that a command gets
beyond its timeout, a verdict is there within a second of it."""

QUEUE_BUCKETS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""In seconds, of waiting for a place under the cap."""


class ExecKey(NamedTuple):
    """What makes two commands one."""

    container_id: str
    command: tuple[str, ...]
    period_seconds: float


class _Call:
    """One call for everybody who waits for it."""

    def __init__(self, timeout_seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self.timeout_seconds = timeout_seconds
        self.waiters = 0
        self.started: asyncio.Future[float] = loop.create_future()
        self.result: asyncio.Future[ExecResult] = loop.create_future()

    def takes(self, timeout_seconds: float) -> bool:
        """Another waiter may join: it has not started, or lasts as long as the waiter would."""
        return not self.result.done() and (
            not self.started.done() or timeout_seconds <= self.timeout_seconds
        )

    def has_outlasted(self, timeout_seconds: float) -> bool:
        """It runs on for others, and has had as much time as the waiter would give it."""
        return (
            self.started.done()
            and not self.result.done()
            and timeout_seconds < self.timeout_seconds
            and self.started.result() + timeout_seconds <= asyncio.get_running_loop().time()
        )


class ExecGate:
    """Runs commands through `runtime`, at most `max_concurrent` at once.

    `run` owns the calls; without it running nothing is started. Cancelling a waiter gives up its call when
    nobody else waits for it; cancelling `run` gives up all.

    Attributes:
        in_flight: calls to the runtime right now.
    """

    def __init__(self, runtime: Runtime, *, max_concurrent: int) -> None:
        self.in_flight = 0
        self._runtime = runtime
        self._places = asyncio.Semaphore(max_concurrent)
        self._calls: dict[ExecKey, _Call] = {}
        self._group: asyncio.TaskGroup | None = None
        self.queue = _QueueSeconds()
        self.shared = 0

    async def run(self) -> None:
        """Lets commands through until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                self._group = None

    async def execute(self, key: ExecKey, *, timeout_seconds: float) -> ExecResult:
        """The result of the command; the timeout counts from its start, not from its place in the queue.

        Raises:
            ExecTimeout: it was still running when its time was over, and the runtime is well.
            RuntimeFailure: see `Runtime.exec_sync`.
        """
        hanging = self._calls.get(key)
        if hanging is not None and hanging.has_outlasted(timeout_seconds):
            await self._see_the_end_of(hanging, timeout_seconds)
        call = self._join(key, timeout_seconds)
        call.waiters += 1
        try:
            return await self._outcome(call, timeout_seconds)
        finally:
            call.waiters -= 1
            if not call.waiters and not call.result.done():
                call.result.cancel()

    def _join(self, key: ExecKey, timeout_seconds: float) -> _Call:
        call = self._calls.get(key)
        if call is not None and call.takes(timeout_seconds):
            self.shared += 1
            call.timeout_seconds = max(call.timeout_seconds, timeout_seconds)
            return call
        if self._group is None:
            raise RuntimeError("ExecGate.run is not running")
        call = self._calls[key] = _Call(timeout_seconds)
        task = self._group.create_task(self._carry_out(key, call), name=f"exec {key.container_id}")
        call.result.add_done_callback(lambda _: task.cancel())
        return call

    async def _outcome(self, call: _Call, timeout_seconds: float) -> ExecResult:
        """Waits as long as the longest waiter does, or until its own time is over."""
        started_at = await asyncio.shield(call.started)
        if timeout_seconds >= call.timeout_seconds:
            return await asyncio.shield(call.result)
        try:
            async with asyncio.timeout_at(started_at + timeout_seconds):
                return await asyncio.shield(call.result)
        except TimeoutError:
            await self._expect_life()
            raise ExecTimeout(f"command timed out after {timeout_seconds:g}s") from None

    async def _see_the_end_of(self, hanging: _Call, timeout_seconds: float) -> None:
        """A run that took too long is judged once: whoever asks again while it lasts, asks anew at its end.

        Raises:
            ExecTimeout: it has lasted for as long again.
        """
        ended, _ = await asyncio.wait([hanging.result], timeout=timeout_seconds)
        if not ended:
            await self._expect_life()
            raise ExecTimeout(f"command timed out after {timeout_seconds:g}s")

    async def _expect_life(self) -> None:
        """Any answer of the runtime is a sign of life.

        Raises:
            RuntimeUnavailable: there is none.
        """
        try:
            async with asyncio.timeout(SIGN_OF_LIFE_SECONDS):
                _ = await self._runtime.version()
        except TimeoutError:
            raise RuntimeUnavailable("the container runtime answers nothing") from None
        except RuntimeUnavailable:
            raise
        except RuntimeFailure:
            return

    async def _carry_out(self, key: ExecKey, call: _Call) -> None:
        loop = asyncio.get_running_loop()
        arrived_at = loop.time()
        try:
            async with self._places:
                waited = loop.time() - arrived_at
                self.queue.observe(waited)
                await asyncio.sleep(max(MEETING_SECONDS - waited, 0.0))
                self.in_flight += 1
                try:
                    call.started.set_result(loop.time())
                    result = await self._runtime.exec_sync(
                        key.container_id, key.command, timeout_seconds=call.timeout_seconds
                    )
                except ExecTimeout:
                    await self._expect_life()
                    raise
                finally:
                    self.in_flight -= 1
        except Exception as error:  # noqa: BLE001 - it belongs to the waiters; their loops handle it
            self._settle(key, call)
            _fail(call, error)
        except asyncio.CancelledError:
            self._settle(key, call)
            call.started.cancel()
            call.result.cancel()
            raise
        else:
            self._settle(key, call)
            if not call.result.done():
                call.result.set_result(result)

    def _settle(self, key: ExecKey, call: _Call) -> None:
        if self._calls.get(key) is call:
            del self._calls[key]


def _fail(call: _Call, error: Exception) -> None:
    if not call.started.done():
        call.started.set_exception(error)
        call.started.exception()
    if not call.result.done():
        call.result.set_exception(error)
        call.result.exception()


class _QueueSeconds:
    """A histogram, counted in plain numbers."""

    def __init__(self) -> None:
        self._counts = [0] * (len(QUEUE_BUCKETS) + 1)
        self._seconds = 0.0

    def observe(self, seconds: float) -> None:
        self._counts[bisect_left(QUEUE_BUCKETS, seconds)] += 1
        self._seconds += seconds

    def family(self) -> HistogramMetricFamily:
        buckets: list[tuple[str, float]] = []
        total = 0
        for bound, count in zip((*map(str, QUEUE_BUCKETS), "+Inf"), self._counts, strict=True):
            total += count
            buckets.append((bound, total))
        return HistogramMetricFamily(
            "kruise_probe_exec_queue_seconds",
            "Time that commands waited for a place under the cap.",
            buckets=buckets,
            sum_value=self._seconds,
        )


class ExecGateCollector(Collector):
    """Turns the numbers of one gate into samples at a scrape."""

    def __init__(self, gate: ExecGate) -> None:
        self._gate = gate

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "kruise_probe_exec_in_flight",
            "Commands that the container runtime runs for probes right now.",
            value=self._gate.in_flight,
        )
        yield CounterMetricFamily(
            "kruise_probe_exec_shared",
            "Commands that were not run, because an identical one was about to be or under way.",
            value=self._gate.shared,
        )
        yield self._gate.queue.family()
