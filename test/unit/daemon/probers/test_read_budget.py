import asyncio

import pytest

from kruise_probe.daemon.probers.read_budget import (
    ReadBudget,
    TooManyBytes,
    take_turn,
)

MAX_ATTEMPT_BYTES = 256 * 1024


def test_the_first_bytes_need_no_turn() -> None:
    budget = ReadBudget()
    budget.spend(4095)
    assert not budget.needs_turn

    budget.spend(1)
    assert budget.needs_turn


def test_one_byte_above_the_budget_ends_the_attempt() -> None:
    budget = ReadBudget()
    budget.spend(MAX_ATTEMPT_BYTES)

    with pytest.raises(TooManyBytes, match="the server sent more than 262144 bytes"):
        budget.spend(1)


async def test_one_attempt_reads_in_each_pass_of_the_loop() -> None:
    passes = 0
    read_in: list[int] = []
    ended = False

    def count() -> None:
        nonlocal passes
        passes += 1
        if not ended:
            asyncio.get_running_loop().call_soon(count)

    async def read() -> None:
        for _ in range(5):
            await take_turn()
            read_in.append(passes)

    count()
    async with asyncio.TaskGroup() as group:
        for _ in range(10):
            group.create_task(read())
    ended = True

    assert len(set(read_in)) == len(read_in) == 50


async def test_an_attempt_that_is_cancelled_keeps_no_turn() -> None:
    waiting = [asyncio.create_task(take_turn()) for _ in range(3)]
    await asyncio.sleep(0)
    for each in waiting[:2]:
        each.cancel()

    async with asyncio.timeout(1):
        await waiting[2]
        await take_turn()
