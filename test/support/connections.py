"""A listener whose connections end with its block."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from kruise_probe_playground.apiserver.frontend import abort

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

ROUNDS_TO_CALL = 3
"""Passes of the loop from `accept` to the call of `serve`."""

ROUNDS_TO_CLOSE = 3
"""Passes of the loop from `abort` to the end of a transport and, with TLS, of the one below it."""


@asynccontextmanager
async def listening(
    serve: Serve, *, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """The port, by default a free one; `serve` is called for each connection. At the end calls are cancelled and connections aborted."""
    taken: dict[asyncio.Task[Any], asyncio.StreamWriter] = {}

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        taken[task] = writer
        with suppress(asyncio.CancelledError):
            await serve(reader, writer)

    server = await asyncio.start_server(connected, host, port, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        # Stop accepting first: asyncio leaks a connection if the server closes before `serve` is called for it.
        asyncio.get_running_loop().remove_reader(server.sockets[0].fileno())
        await _rounds(ROUNDS_TO_CALL)
        server.close()
        for task, writer in taken.items():
            task.cancel()
            abort(writer.transport)
        if taken:
            await asyncio.wait(taken)
        await _rounds(ROUNDS_TO_CLOSE)


async def _rounds(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)
