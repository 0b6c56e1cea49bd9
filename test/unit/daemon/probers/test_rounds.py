"""Requests of one round share the time at which their responses are first read."""

import asyncio

from kruise_probe.daemon.probers.dialing import end_of_round

ROUND_SECONDS = 0.002


async def test_requests_of_one_round_share_its_end() -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()

    first = end_of_round(loop)
    await asyncio.sleep(ROUND_SECONDS / 2)
    second = end_of_round(loop)

    assert first == second == began + ROUND_SECONDS


async def test_request_after_the_end_begins_a_new_round() -> None:
    loop = asyncio.get_running_loop()
    first = end_of_round(loop)

    await asyncio.sleep(ROUND_SECONDS)

    assert end_of_round(loop) == first + ROUND_SECONDS


async def test_each_loop_has_its_own_rounds() -> None:
    loop = asyncio.get_running_loop()
    other = asyncio.new_event_loop()
    other.close()

    _ = end_of_round(other)

    assert end_of_round(loop) == loop.time() + ROUND_SECONDS
