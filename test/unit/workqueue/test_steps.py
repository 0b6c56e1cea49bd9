"""Which step of a reconcile took the event loop, and that measuring changes nothing else."""

import asyncio
from time import thread_time

import pytest
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs
from support.metrics import metric

from kruise_probe.workqueue.controller import Controller, Result
from kruise_probe.workqueue.queue import WorkQueue
from kruise_probe.workqueue.steps import measured


def compute(seconds: float) -> None:
    end = thread_time() + seconds
    while thread_time() < end:
        pass


async def test_each_slow_step_is_reported_and_waits_are_not() -> None:
    slow: list[float] = []

    async def work() -> str:
        compute(0.08)
        await asyncio.sleep(5.0)
        compute(0.01)
        await asyncio.sleep(5.0)
        compute(0.06)
        return "done"

    assert await measured(work(), slow.append) == "done"
    assert [round(each, 2) >= least for each, least in zip(slow, (0.08, 0.06), strict=True)] == [
        True
    ] * 2
    assert sum(slow) < 0.2


async def test_errors_and_cancellations_pass_through_measured_work() -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(5.0)
        except asyncio.CancelledError:
            ended.append("cancelled")
            await asyncio.sleep(1.0)
            raise ValueError("broken") from None

    async def run() -> None:
        await measured(work(), lambda _: None)

    task = asyncio.create_task(run())
    await asyncio.sleep(1.0)
    task.cancel()
    with pytest.raises(ValueError, match="broken"):
        await task
    assert ended == ["cancelled"]


async def test_a_slow_reconcile_is_logged_with_its_key_and_counted() -> None:
    queue: WorkQueue[str] = WorkQueue(name="slow")

    async def reconcile(key: str) -> Result | None:
        compute(0.07 if key == "ns/large" else 0.0)
        return None

    controller = Controller(queue=queue, reconcile=reconcile, workers=1)
    with capture_logs(processors=[merge_contextvars]) as logs:
        running = asyncio.create_task(controller.run())
        for key in ("ns/small", "ns/large"):
            queue.add(key)
        await asyncio.sleep(1.0)
        running.cancel()
        await asyncio.wait({running})
    (found,) = [each for each in logs if each["event"] == "slow step"]
    assert (found["controller"], found["request"]) == ("slow", "ns/large")
    assert metric("kruise_probe_slow_steps_total", controller="slow") == 1
