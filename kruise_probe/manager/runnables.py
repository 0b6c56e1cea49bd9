"""Everything that a manager runs: starts and stops services, caches, leader election and controllers.

Start order, with reasons:

1. Services: health and metrics first, or the kubelet kills a process that waits for a slow API server.
2. Caches, until they have synced: a reconcile on a partial cache would remove what it does not see.
3. Leader election: a standby has warm caches and takes over at once.
4. Controllers: only the leader writes.

The stop order is the reverse. Leader election releases the Lease when all controllers have ended.

Source: controller-runtime pkg/manager/internal.go (Start, engageStopProcedure), runnable_group.go.
Differs: the caller, not the type, assigns a runnable to a group; any runnable that returns ends the manager;
stopping takes at most five seconds, then tasks that hang are logged and abandoned.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

import structlog

from kruise_probe.api.errors import FatalError, first_of

STOP_LEADING_SECONDS: Final = 3.0
"""Timeout for reconciles to end and the Lease to be released; the release takes two seconds at most."""

STOP_CACHES_SECONDS: Final = 0.5
STOP_SERVICES_SECONDS: Final = 1.0

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class Runnable(Protocol):
    """Something that runs until it is cancelled. Errors use its `name` if it has one."""

    async def run(self) -> None: ...


class Cache(Protocol):
    """A runnable that is usable once it has synced, such as `SharedInformer`."""

    @property
    def name(self) -> str: ...
    @property
    def has_synced(self) -> bool: ...
    @property
    def last_error(self) -> str: ...
    async def run(self) -> None: ...
    async def wait_for_sync(self) -> None: ...


class Elector(Protocol):
    """Runs `lead` while it is the leader, such as `LeaderElector`."""

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None: ...


class ManagerError(FatalError):
    """The reason why a manager ended without being cancelled, in one line."""


class Runnables:
    """Owns every task of the process while `run` runs. Not safe to run twice.

    If tasks hang, `run` returns without them. The process must then end by `os._exit`, as `asyncio.run` would wait for them.
    """

    def __init__(
        self,
        *,
        services: Sequence[Runnable],
        caches: Sequence[Cache],
        controllers: Sequence[Runnable],
        elector: Elector | None,
        cache_sync_timeout_seconds: float,
    ) -> None:
        self._services = services
        self._caches = caches
        self._controllers = controllers
        self._elector = elector
        self._cache_sync_timeout_seconds = cache_sync_timeout_seconds
        self._stages: list[_Stage] = []

    async def run(self) -> None:
        """Run everything until cancelled; then return or raise within five seconds.

        Raises:
            ManagerError: a runnable ended or failed, or caches did not sync in time.
        """
        try:
            self._start(self._services, STOP_SERVICES_SECONDS)
            self._start(self._caches, STOP_CACHES_SECONDS)
            await self._wait_for_caches()
            leading = asyncio.create_task(self._lead_when_elected(), name="leading")
            self._stages.append(_Stage([leading], STOP_LEADING_SECONDS))
            await self._until_first_end()
        finally:
            for stage in reversed(self._stages):
                await stage.stop()

    def _start(self, runnables: Sequence[Runnable], stop_seconds: float) -> None:
        tasks = [asyncio.create_task(_guard(each), name=_name_of(each)) for each in runnables]
        self._stages.append(_Stage(tasks, stop_seconds))

    async def _wait_for_caches(self) -> None:
        synced = asyncio.create_task(_all_synced(self._caches), name="cache sync")
        try:
            await self._until_first_end(synced, self._cache_sync_timeout_seconds)
        finally:
            synced.cancel()
            await asyncio.wait([synced])
        unsynced = [each for each in self._caches if not each.has_synced]
        if unsynced:
            reasons = "; ".join(
                f"{each.name} ({each.last_error or 'no response'})" for each in unsynced
            )
            raise ManagerError(
                f"caches did not sync within {self._cache_sync_timeout_seconds:g} s: {reasons}. Check that the"
                " API server answers, that the CRDs are installed and that the role allows list and watch"
            )
        _log.info("caches synced", caches=[each.name for each in self._caches])

    async def _until_first_end(
        self, goal: asyncio.Task[None] | None = None, timeout_seconds: float | None = None
    ) -> None:
        """Wait until a started task ends, `goal` ends or the timeout expires.

        Raises:
            ManagerError: a started task ended.
        """
        started = [task for stage in self._stages for task in stage.tasks]
        awaited = started if goal is None else [*started, goal]
        done, _ = await asyncio.wait(
            awaited, timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED
        )
        for task in done - {goal}:
            task.result()

    async def _lead_when_elected(self) -> None:
        if self._elector is None:
            await self._lead()
            return
        try:
            await self._elector.run(self._lead)
        except ManagerError:
            raise
        except Exception as error:
            raise ManagerError(f"leader election failed: {_reason(error)}") from error
        raise ManagerError("leader election ended")

    async def _lead(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for each in self._controllers:
                    group.create_task(_guard(each), name=_name_of(each))
        except ExceptionGroup as failed:  # Python 3.11.2 wraps what an `except*` raises
            raise failed.exceptions[0] from None


class _Stage:
    """Tasks that start and stop together. A TaskGroup would wait forever for a task that hangs."""

    def __init__(self, tasks: Sequence[asyncio.Task[None]], stop_seconds: float) -> None:
        self.tasks = tasks
        self._stop_seconds = stop_seconds

    async def stop(self) -> None:
        """Cancel the tasks, wait `stop_seconds` for them, and log those still running."""
        for task in self.tasks:
            task.cancel()
        if not self.tasks:
            return
        done, pending = await asyncio.wait(self.tasks, timeout=self._stop_seconds)
        for task in done:
            if not task.cancelled() and (error := task.exception()) is not None:
                _log.debug("ended with an error", error=_reason(error))
        hung = sorted(task.get_name() for task in pending)
        if hung:
            _log.warning("tasks did not stop in time", hung=hung, waited_seconds=self._stop_seconds)


def _name_of(runnable: object) -> str:
    return str(getattr(runnable, "name", type(runnable).__name__))


def _reason(error: BaseException) -> str:
    first = first_of(error)
    return str(first).partition("\n")[0] or type(first).__name__


async def _guard(runnable: Runnable) -> None:
    """Run a runnable until it is cancelled.

    Raises:
        ManagerError: the runnable failed or ended.
    """
    try:
        await runnable.run()
    except Exception as error:
        raise ManagerError(f"{_name_of(runnable)} failed: {_reason(error)}") from error
    raise ManagerError(f"{_name_of(runnable)} ended")


async def _all_synced(caches: Sequence[Cache]) -> None:
    for each in caches:
        await each.wait_for_sync()
