"""Probes that look for their answers together, on virtual time."""

import asyncio

from kruise_probe.daemon.probers.rounds import ANSWER_SECONDS, round_of


async def test_all_who_asked_in_a_round_are_woken_at_its_end() -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()

    async def ask(after_seconds: float) -> float:
        await asyncio.sleep(after_seconds)
        await round_of(loop).over()
        return loop.time() - began

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(ask(after)) for after in (0.0, 0.0, ANSWER_SECONDS / 2)]

    woken = {task.result() for task in tasks}
    assert len(woken) == 1
    assert ANSWER_SECONDS <= woken.pop() < 2 * ANSWER_SECONDS


async def test_who_comes_later_begins_a_round_of_its_own() -> None:
    loop = asyncio.get_running_loop()
    first = round_of(loop)
    await first.over()

    assert first.is_over
    began = loop.time()
    await round_of(loop).over()
    assert loop.time() - began >= ANSWER_SECONDS


async def test_one_that_gives_up_leaves_the_others() -> None:
    loop = asyncio.get_running_loop()
    tasks = [asyncio.create_task(round_of(loop).over()) for _ in range(3)]
    await asyncio.sleep(0)

    _ = tasks[1].cancel()
    done, _ = await asyncio.wait(tasks)

    assert len(done) == 3
    assert [each.cancelled() for each in tasks] == [False, True, False]
