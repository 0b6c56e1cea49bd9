"""The workqueue and the calling of reconciles: keys a second, and microseconds of CPU per key."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import structlog

from benchmarks import machine
from benchmarks.reporting import Row, emit, interpreter
from kruise_probe.api.keys import NamespacedName
from kruise_probe.workqueue.consume import Result, run_workers
from kruise_probe.workqueue.rate_limiting import WorkQueue

KEYS = [NamespacedName("default", f"pod-{number}") for number in range(5000)]


async def _add_get_done(rounds: int) -> int:
    """The bare protocol, without a worker."""
    queue: WorkQueue[NamespacedName] = WorkQueue(name="bench")
    for _ in range(rounds):
        for key in KEYS:
            queue.add(key)
            queue.add(key)
        for _ in KEYS:
            queue.done(await queue.get())
    return rounds * len(KEYS)


async def _reconciled(rounds: int) -> int:
    """Through 48 workers, by reconciles that find nothing to do."""
    seen = 0

    async def reconcile(_: NamespacedName) -> Result | None:
        nonlocal seen
        seen += 1
        return None

    queue: WorkQueue[NamespacedName] = WorkQueue(name="bench")
    async with asyncio.TaskGroup() as group:
        group.create_task(run_workers(queue, reconcile, name="bench", workers=48))
        for _ in range(rounds):
            for key in KEYS:
                queue.add(key)
            while len(queue):  # noqa: ASYNC110 - the workers' turn, and nothing else
                await asyncio.sleep(0)
        queue.shut_down()
    return seen


async def _delayed(rounds: int) -> int:
    """As timers: each key added for later."""
    queue: WorkQueue[NamespacedName] = WorkQueue(name="bench")
    for _ in range(rounds):
        for key in KEYS:
            queue.add_after(key, 0.001)
        for _ in KEYS:
            queue.done(await queue.get())
    return rounds * len(KEYS)


CASES: dict[str, Callable[[int], Awaitable[int]]] = {
    "add, get, done": _add_get_done,
    "48 workers": _reconciled,
    "add_after": _delayed,
}


async def measure(rounds: int) -> list[Row]:
    structlog.configure(cache_logger_on_first_use=True)
    rows = [machine.speed()]
    emit(rows[0])
    for name, case in CASES.items():
        started_at = time.process_time()
        keys = await case(rounds)
        spent = time.process_time() - started_at
        row = {
            "benchmark": "queue",
            "case": name,
            "keys": keys,
            "us_per_key": round(spent / keys * 1e6, 2),
            "keys_per_second": round(keys / spent),
            "python": interpreter(),
        }
        rows.append(row)
        emit(row)
    return rows
