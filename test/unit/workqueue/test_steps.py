"""Which step of a reconcile took the event loop, and that measuring changes nothing else."""

import asyncio
from time import thread_time

import pytest
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs
from support.background import background
from support.cases import cases
from support.metrics import metric

from kruise_probe.workqueue.controller import Controller
from kruise_probe.workqueue.queue import WorkQueue
from kruise_probe.workqueue.slices import Slices, Steps
from kruise_probe.workqueue.steps import measured


def compute(seconds: float) -> None:
    end = thread_time() + seconds
    while thread_time() < end:
        pass


async def test_each_slow_step_is_reported_and_waits_are_not() -> None:
    async def work() -> str:
        compute(0.08)
        await asyncio.sleep(5.0)
        compute(0.01)
        await asyncio.sleep(5.0)
        compute(0.06)
        return "done"

    with capture_logs() as logs:
        assert await measured(work()) == "done"
    first, second = [line["cpu_seconds"] for line in logs]
    assert first >= 0.08
    assert second >= 0.06
    assert first + second < 0.2


async def test_errors_and_cancellations_pass_through_measured_work() -> None:
    async def work() -> None:
        try:
            await asyncio.sleep(5.0)
        except asyncio.CancelledError:
            await asyncio.sleep(1.0)
            raise ValueError("cancelled") from None

    async def run() -> None:
        await measured(work())

    task = asyncio.create_task(run())
    await asyncio.sleep(1.0)
    task.cancel()
    with pytest.raises(ValueError, match="cancelled"):
        await task


def computation(seconds: float) -> Steps[None]:
    yield
    compute(seconds)


@cases("is_in_slices", at_once=False, in_slices=True)
async def test_a_slow_reconcile_is_logged_with_its_key_and_counted(is_in_slices: bool) -> None:
    queue = WorkQueue[str](name=f"slow-{is_in_slices}")
    slices = Slices()

    async def reconcile(key: str) -> None:
        seconds = 0.07 if key == "ns/large" else 0.0
        if is_in_slices:
            await slices.run(computation(seconds))
        else:
            compute(seconds)

    controller = Controller(queue=queue, reconcile=reconcile, workers=1)
    with capture_logs(processors=[merge_contextvars]) as logs:
        async with background(controller.run()):
            queue.add("ns/small")
            queue.add("ns/large")
            await asyncio.sleep(1.0)
    (found,) = [line for line in logs if line["event"] == "slow step"]
    assert found["controller"] == queue.name
    assert found["request"] == "ns/large"
    assert metric("kruise_probe_slow_steps_total", controller=queue.name) == 1
