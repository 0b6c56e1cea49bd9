"""The optional rate of requests."""

import asyncio

from kruise_probe.client.throttle import Throttle


async def test_a_burst_passes_at_once_and_the_rest_at_the_rate() -> None:
    time = asyncio.get_running_loop().time
    bucket = Throttle(qps=10, burst=3)
    begun = time()
    passed: list[float] = []
    for _ in range(6):
        await bucket.take()
        passed.append(round(time() - begun, 3))

    assert passed == [0.0, 0.0, 0.0, 0.1, 0.2, 0.3]


async def test_an_idle_bucket_fills_up_to_its_burst_and_no_further() -> None:
    time = asyncio.get_running_loop().time
    bucket = Throttle(qps=10, burst=2)
    await asyncio.sleep(100)
    begun = time()
    for _ in range(4):
        await bucket.take()

    assert round(time() - begun, 3) == 0.2


async def test_waiters_pass_in_the_order_in_which_they_came() -> None:
    bucket = Throttle(qps=10, burst=1)
    passed: list[int] = []

    async def take(number: int) -> None:
        await bucket.take()
        passed.append(number)

    async with asyncio.TaskGroup() as tasks:
        for number in range(5):
            tasks.create_task(take(number))

    assert passed == [0, 1, 2, 3, 4]
