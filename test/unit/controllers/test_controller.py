import asyncio

from kruise_probe.controllers.controller import Controller
from kruise_probe.workqueue.rate_limiting import WorkQueue


async def test_it_works_its_queue_off_with_so_many_workers_until_cancelled() -> None:
    queue: WorkQueue[str] = WorkQueue(name="")
    busy: list[int] = []
    now_busy = 0

    async def reconcile(_key: str) -> None:
        nonlocal now_busy
        now_busy += 1
        busy.append(now_busy)
        await asyncio.sleep(1)
        now_busy -= 1

    controller = Controller(name="things", queue=queue, reconcile=reconcile, workers=2)
    for key in "abcd":
        queue.add(key)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(controller.run())
        await asyncio.sleep(5)
        queue.add("e")
        await asyncio.sleep(5)
        assert not running.done()
        running.cancel()
    assert len(busy) == 5
    assert max(busy) == 2


async def test_a_reconcile_has_the_deadline_of_its_controller() -> None:
    queue: WorkQueue[str] = WorkQueue(name="")
    cut_off_at: list[float] = []

    async def hang(_key: str) -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            cut_off_at.append(asyncio.get_running_loop().time())

    controller = Controller(
        name="things", queue=queue, reconcile=hang, workers=1, timeout_seconds=7
    )
    queue.add("a")
    async with asyncio.TaskGroup() as group:
        running = group.create_task(controller.run())
        await asyncio.sleep(7.001)
        running.cancel()
    queue.shut_down()
    assert cut_off_at == [7]
