"""Runs the commands of all exec probes: a limited number at once, and identical ones once.

A call to the runtime uses about 20 ms of CPU, and a call that hangs keeps a process. So the number of concurrent calls
is limited. `exec_shares` decides which command runs next. Identical commands (container, command, period) of several
probes are deduplicated into one call if they are due together. The call gets their longest timeout, and each probe
applies its own timeout. While the call runs for a probe with a longer timeout, the others start no second call.

When a command times out, either the command hangs or the runtime does. The gate requests the runtime's version to
tell one from the other.

Differs: kubelet does not limit exec probes. A hundred probes that are due together are a hundred calls at once, and a
runtime that hangs fails all of them.
"""

import asyncio
from collections.abc import Hashable
from functools import partial
from typing import Final, NamedTuple, Protocol

from kruise_probe.daemon.cri.runtime import (
    ExecResult,
    ExecTimeout,
    Runtime,
    RuntimeFailure,
    RuntimeUnavailable,
)
from kruise_probe.daemon.probers.exec_shares import (
    LONG_SECONDS,
    ExecShares,
    HeldBy,
    Limit,
    PlaceRequest,
    Tenant,
)
from kruise_probe.histogram import DurationHistogram

QUEUE_BUCKETS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Buckets of the time that commands wait for a place, in seconds."""

JOIN_SECONDS: Final = 0.005
"""How long a call waits for identical commands of the same tick before it starts."""

ALIVE_SECONDS: Final = 0.4
"""Deadline of the version request after a timeout. With the 0.5 s grace of an exec, the result comes at most 1 s after
the timeout."""

LEAST_QUEUED_SECONDS: Final = 30.0
QUEUED_PERIODS: Final = 3
"""A probe that waits for a place longer than both is reported as queued too long."""

QUEUED_SLACK_SECONDS: Final = 0.5
"""Tolerance: the probe checks at its ticks, which are some milliseconds late."""


class ExecKey(NamedTuple):
    """Commands with equal keys are deduplicated."""

    container_id: str
    command: tuple[str, ...]
    period_seconds: float


class Waiter(Hashable, Protocol):
    """A probe that waits for its command. An edit may change its period meanwhile."""

    period_seconds: float


class _Call(PlaceRequest):
    """One call for all probes that wait for it."""

    def __init__(self, key: ExecKey, tenant: Tenant, timeout_seconds: float) -> None:
        super().__init__(tenant, timeout_seconds)
        loop = asyncio.get_running_loop()
        self.key = key
        self.arrived_at = loop.time()
        self.waiters = 0
        self.task: asyncio.Task[None] | None = None
        self.started: asyncio.Future[float] = loop.create_future()
        self.result: asyncio.Future[ExecResult] = loop.create_future()

    def accepts(self, timeout_seconds: float) -> bool:
        """Whether another probe may join: the call has at least this timeout, or can still get it."""
        if self.result.done():
            return False
        if timeout_seconds <= self.timeout_seconds:
            return True
        if self.started.done():
            return False
        # A short call that has a place must not become long, because long calls have smaller limits.
        return not self.has_place or self.long or timeout_seconds <= LONG_SECONDS

    def has_outlasted(self, timeout_seconds: float) -> bool:
        """Whether the call still runs for others, although it has run longer than `timeout_seconds`."""
        return (
            self.started.done()
            and not self.result.done()
            and timeout_seconds < self.timeout_seconds
            and self.started.result() + timeout_seconds <= asyncio.get_running_loop().time()
        )


class _Wait(NamedTuple):
    """A probe that waits for its call to start."""

    waiter: Waiter
    call: _Call
    since: float

    def is_too_long(self, now: float) -> bool:
        limit = max(QUEUED_PERIODS * self.waiter.period_seconds, LEAST_QUEUED_SECONDS)
        return now - self.since >= limit - QUEUED_SLACK_SECONDS


class ExecGate:
    """Runs commands through `runtime`, at most `max_concurrent` at once.

    `run` owns the calls; no call starts without it. Cancelling the last waiter of a call cancels the call. Cancelling
    `run` cancels all calls.

    Attributes:
        in_flight: the number of calls to the runtime in flight.
        shared: the number of commands that joined a call of another probe.
        queue_durations: how long calls waited for a place.
    """

    def __init__(self, runtime: Runtime, *, max_concurrent: int) -> None:
        self.in_flight = 0
        self.shared = 0
        self.queue_durations = DurationHistogram(QUEUE_BUCKETS)
        self._runtime = runtime
        self._max_concurrent = max_concurrent
        self._shares: ExecShares[_Call] = ExecShares(max_concurrent)
        self._calls: dict[ExecKey, _Call] = {}
        self._waits: dict[Waiter, _Wait] = {}
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Run commands until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                self._group = None
                for call in self._calls.values():
                    call.result.cancel()

    async def execute(
        self, key: ExecKey, *, tenant: Tenant, timeout_seconds: float, waiter: Waiter
    ) -> ExecResult:
        """The result of the command; the timeout counts from its start, not from its place in the queue.

        `waiter` identifies the probe; it has no other command in this gate.

        Raises:
            ExecTimeout: the command was still running at its timeout, and the runtime responds.
            RuntimeFailure: see `Runtime.exec_sync`.
        """
        previous = self._calls.get(key)
        if previous is not None and previous.has_outlasted(timeout_seconds):
            await self._wait_for_previous_run(previous, timeout_seconds)
        call = self._join(key, tenant, timeout_seconds)
        call.waiters += 1
        try:
            started_at = await self._wait_for_start(call, waiter)
            return await self._wait_for_result(call, started_at, timeout_seconds)
        finally:
            call.waiters -= 1
            if not call.waiters:
                call.result.cancel()

    def queued_too_long(self, waiter: Waiter) -> str:
        """Why the probe has waited for a place longer than max(3 periods, 30 s), and what to do; empty if it has not."""
        wait = self._waits.get(waiter)
        if wait is None or not wait.is_too_long(asyncio.get_running_loop().time()):
            return ""
        return _describe(
            self._shares.limit_of(wait.call), wait.call.tenant.namespace, self._max_concurrent
        )

    @property
    def queued_probes(self) -> int:
        """The number of probes that have waited too long for a place."""
        now = asyncio.get_running_loop().time()
        return sum(wait.is_too_long(now) for wait in self._waits.values())

    def _join(self, key: ExecKey, tenant: Tenant, timeout_seconds: float) -> _Call:
        call = self._calls.get(key)
        if call is not None and call.accepts(timeout_seconds):
            self.shared += 1
            if timeout_seconds > call.timeout_seconds:
                self._shares.lengthen(call, timeout_seconds)
            return call
        if self._group is None:
            raise RuntimeError("ExecGate.run is not running")
        call = self._calls[key] = _Call(key, tenant, timeout_seconds)
        call.result.add_done_callback(lambda _: self._clean_up(call))
        self._shares.add(call, now=call.arrived_at, period_seconds=key.period_seconds)
        self._start_next()
        return call

    def _start_next(self) -> None:
        """Start every call that may have a place."""
        while self._group is not None and (call := self._shares.take()) is not None:
            call.task = self._group.create_task(
                self._run_call(call), name=f"exec {call.key.container_id}"
            )
            # A callback, because a task that is cancelled before it runs executes no `finally`.
            call.task.add_done_callback(partial(self._release_place, call))

    def _release_place(self, call: _Call, _: object = None) -> None:
        self._shares.remove(call)
        self._start_next()

    def _clean_up(self, call: _Call) -> None:
        """Clean up after a call that has its result, or whose waiters were all cancelled."""
        if self._calls.get(call.key) is call:
            del self._calls[call.key]
        call.started.cancel()
        if call.task is None:
            self._release_place(call)
        else:
            call.task.cancel()

    async def _wait_for_start(self, call: _Call, waiter: Waiter) -> float:
        """Wait until the call starts. Return when it started, in loop time."""
        self._waits[waiter] = _Wait(waiter, call, asyncio.get_running_loop().time())
        try:
            return await asyncio.shield(call.started)
        finally:
            self._waits.pop(waiter, None)

    async def _wait_for_result(
        self, call: _Call, started_at: float, timeout_seconds: float
    ) -> ExecResult:
        """Wait for the result of the call, at most until the waiter's own timeout."""
        if timeout_seconds >= call.timeout_seconds:
            return await asyncio.shield(call.result)
        try:
            async with asyncio.timeout_at(started_at + timeout_seconds):
                return await asyncio.shield(call.result)
        except TimeoutError:
            await self._check_runtime_alive()
            raise ExecTimeout(timeout_seconds) from None

    async def _wait_for_previous_run(self, previous: _Call, timeout_seconds: float) -> None:
        """Wait for the previous run of a probe that is due again, so that one slow run fails once.

        Raises:
            ExecTimeout: the previous run did not end within another timeout.
        """
        ended, _ = await asyncio.wait([previous.result], timeout=timeout_seconds)
        if not ended:
            await self._check_runtime_alive()
            raise ExecTimeout(timeout_seconds)

    async def _check_runtime_alive(self) -> None:
        """Check that the runtime responds; an error is a response too.

        Raises:
            RuntimeUnavailable: the runtime does not respond.
        """
        try:
            async with asyncio.timeout(ALIVE_SECONDS):
                _ = await self._runtime.version()
        except TimeoutError:
            raise RuntimeUnavailable(
                "the container runtime does not respond; check its service on the node"
            ) from None
        except RuntimeUnavailable:
            raise
        except RuntimeFailure:
            return

    async def _run_call(self, call: _Call) -> None:
        loop = asyncio.get_running_loop()
        waited = loop.time() - call.arrived_at
        self.queue_durations.observe(waited)
        try:
            await asyncio.sleep(max(JOIN_SECONDS - waited, 0.0))
            self.in_flight += 1
            try:
                call.started.set_result(loop.time())
                result = await self._runtime.exec_sync(
                    call.key.container_id, call.key.command, timeout_seconds=call.timeout_seconds
                )
            except ExecTimeout:
                await self._check_runtime_alive()
                raise
            finally:
                self.in_flight -= 1
        except Exception as error:  # noqa: BLE001 - the waiters handle it
            if not call.result.done():
                call.result.set_exception(error)
                call.result.exception()
        except asyncio.CancelledError:
            call.result.cancel()
            raise
        else:
            if not call.result.done():
                call.result.set_result(result)


def _describe(limit: Limit, namespace: str, places: int) -> str:
    """The reason why a command waits. Mentions no namespace but the probe's own."""
    which = f"commands with timeoutSeconds over {LONG_SECONDS:g}" if limit.long else "commands"
    whose = {
        HeldBy.POD: "of this pod",
        HeldBy.NAMESPACE: f"of namespace {namespace}",
        HeldBy.NODE: "of other pods",
    }[limit.held_by]
    advice = "raise --max-concurrent-execs of the daemon, or move the pod to another node"
    if limit.held_by is not HeldBy.NODE:
        advice = "end commands that hang, run fewer exec probes, or lower timeoutSeconds"
    return (
        f"no place to run the command; {which} {whose} hold the {limit.places} of this node's {places} places that "
        f"they may hold; {advice}"
    )
