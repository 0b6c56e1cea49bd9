"""The listener of tests closes all connections; the leak check fails for one that stays open."""

import asyncio
import socket

import pytest
from support.connections import listening


@pytest.mark.parametrize("passes", range(10))
def test_a_connection_accepted_just_before_the_end_is_closed(passes: int) -> None:
    async def serve(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async def connect_and_end() -> None:
        async with listening(serve) as port:
            with socket.create_connection(("127.0.0.1", port)):
                for _ in range(passes):
                    await asyncio.sleep(0)

    # asyncio.run would make further passes, in which a leaked connection ends.
    loop = asyncio.new_event_loop()
    loop.run_until_complete(connect_and_end())
    loop.close()
