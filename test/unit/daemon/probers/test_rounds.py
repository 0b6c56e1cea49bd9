"""Probes that look for their answers together, on virtual time."""

import asyncio

from kruise_probe.daemon.probers.rounds import ANSWER_SECONDS, end_of_round


async def test_all_who_ask_in_a_round_look_at_its_end() -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()

    first = end_of_round(loop)
    await asyncio.sleep(ANSWER_SECONDS / 2)
    second = end_of_round(loop)

    assert first == second == began + ANSWER_SECONDS


async def test_who_asks_later_begins_a_round_of_its_own() -> None:
    loop = asyncio.get_running_loop()
    first = end_of_round(loop)

    await asyncio.sleep(ANSWER_SECONDS)

    assert end_of_round(loop) == first + ANSWER_SECONDS


async def test_the_end_of_another_loops_round_is_not_taken() -> None:
    loop = asyncio.get_running_loop()
    other = asyncio.new_event_loop()
    other.close()

    _ = end_of_round(other)

    assert end_of_round(loop) == loop.time() + ANSWER_SECONDS
