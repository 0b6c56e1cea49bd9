import asyncio

import pytest

from kruise_probe.workqueue.priority import Priority
from kruise_probe.workqueue.queue import Queue, ShutDown


@pytest.fixture
def queue() -> Queue[str]:
    return Queue(name="")


async def take_all(queue: Queue[str]) -> list[str]:
    return [await queue.get() for _ in range(len(queue))]


async def test_a_key_added_twice_is_handed_out_once(queue: Queue[str]) -> None:
    queue.add("a")
    queue.add("b")
    queue.add("a")
    assert await take_all(queue) == ["a", "b"]


async def test_a_key_added_while_it_is_processed_is_handed_out_again_when_done(
    queue: Queue[str],
) -> None:
    queue.add("a")
    await queue.get()
    queue.add("a")
    assert len(queue) == 0
    queue.done("a")
    assert await take_all(queue) == ["a"]


async def test_get_waits_for_a_key(queue: Queue[str]) -> None:
    async with asyncio.TaskGroup() as group:
        getting = group.create_task(queue.get())
        await asyncio.sleep(1)
        assert not getting.done()
        queue.add("a")
    assert getting.result() == "a"


async def test_each_added_key_wakes_one_waiting_worker(queue: Queue[str]) -> None:
    async with asyncio.TaskGroup() as group:
        getting = [group.create_task(queue.get()) for _ in range(3)]
        await asyncio.sleep(1)
        for key in "abc":
            queue.add(key)
    assert {task.result() for task in getting} == {"a", "b", "c"}


async def test_a_worker_that_is_cancelled_as_it_wakes_leaves_its_key_to_the_next(
    queue: Queue[str],
) -> None:
    async with asyncio.TaskGroup() as group:
        cancelled, other = group.create_task(queue.get()), group.create_task(queue.get())
        await asyncio.sleep(1)
        queue.add("a")
        cancelled.cancel()
    assert cancelled.cancelled()
    assert other.result() == "a"


async def test_a_cancelled_get_leaves_no_trace(queue: Queue[str]) -> None:
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(queue.get())
        await asyncio.sleep(1)
        waiting.cancel()
    queue.add("a")
    assert await queue.get() == "a"


@pytest.mark.parametrize(
    ("again", "order"),
    [
        pytest.param(Priority.HIGH, ["b", "a"], id="moved-up"),
        pytest.param(Priority.LOW, ["a", "b"], id="never-moved-down"),
    ],
)
async def test_adding_a_waiting_key_again_raises_its_priority_only(
    queue: Queue[str], again: Priority, order: list[str]
) -> None:
    queue.add("a")
    queue.add("b")
    queue.add("b", again)
    assert await take_all(queue) == order


async def test_a_key_added_while_processed_keeps_the_highest_priority_asked_for(
    queue: Queue[str],
) -> None:
    queue.add("a")
    await queue.get()
    for priority in (Priority.LOW, Priority.HIGH, Priority.NORMAL):
        queue.add("a", priority)
    queue.done("a")
    assert await queue.get_with_priority() == ("a", Priority.HIGH)


async def test_done_of_a_key_that_is_not_processed_is_an_error(queue: Queue[str]) -> None:
    queue.add("a")
    with pytest.raises(KeyError):
        queue.done("a")


async def test_shut_down_hands_out_what_is_left_and_refuses_what_is_new(
    queue: Queue[str],
) -> None:
    queue.add("a")
    queue.shut_down()
    queue.add("b")
    assert await queue.get() == "a"
    with pytest.raises(ShutDown):
        await queue.get()


async def test_shut_down_ends_all_waiting_gets(queue: Queue[str]) -> None:
    async with asyncio.TaskGroup() as group:
        waiting = [group.create_task(expect_shut_down(queue)) for _ in range(3)]
        await asyncio.sleep(1)
        queue.shut_down()
    assert all(task.result() for task in waiting)


async def expect_shut_down(queue: Queue[str]) -> bool:
    with pytest.raises(ShutDown):
        await queue.get()
    return True


async def test_draining_waits_for_ready_keys_and_for_those_in_process(
    queue: Queue[str], looptime: float
) -> None:
    queue.add("a")
    queue.add("b")

    async def work() -> None:
        for _ in range(2):
            key = await queue.get()
            await asyncio.sleep(10)
            queue.done(key)

    async with asyncio.TaskGroup() as group:
        group.create_task(work())
        await queue.shut_down_with_drain()
        assert looptime == 20


async def test_draining_works_off_what_was_added_during_process(queue: Queue[str]) -> None:
    queue.add("a")
    await queue.get()
    queue.add("a")
    async with asyncio.TaskGroup() as group:
        draining = group.create_task(queue.shut_down_with_drain())
        await asyncio.sleep(1)
        queue.done("a")
        queue.done(await queue.get())
        await draining


async def test_shut_down_ends_a_drain_that_hangs(queue: Queue[str], looptime: float) -> None:
    queue.add("a")
    async with asyncio.TaskGroup() as group:
        group.create_task(queue.shut_down_with_drain())
        await asyncio.sleep(5)
        queue.shut_down()
    assert looptime == 5


async def test_draining_an_idle_queue_returns_at_once(queue: Queue[str]) -> None:
    await queue.shut_down_with_drain()
    assert queue.shutting_down
