"""An HTTP server with scripted responses, including bytes and timing.

Not an API server: it has neither objects nor paths. `script` has one act per request, in the order of arrival; the
last act is repeated.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

import msgspec
from support.connections import listening

Act = Callable[["Received", asyncio.StreamWriter], Awaitable[None]]


class Received(NamedTuple):
    """One request as it came in."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


class ScriptedHttpServer:
    """Owns the listening socket and every connection for as long as its context is open."""

    def __init__(self, script: list[Act]) -> None:
        self.script = script
        self.received: list[Received] = []
        self.connections = 0
        self.url = ""

    @asynccontextmanager
    async def running(
        self, tls: ssl.SSLContext | None = None
    ) -> AsyncIterator["ScriptedHttpServer"]:
        async with listening(self._connected, tls=tls) as port:
            self.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
            yield self

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            await self._serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not writer.is_closing():
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.rstrip().split("\r\n")
            method, target, _ = first.split(" ")
            headers = {}
            for line in lines:
                name, value = line.split(": ", 1)
                headers[name.lower()] = value
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            received = Received(method, target, headers, body)
            self.received.append(received)
            act = self.script[0]
            if len(self.script) > 1:
                self.script.pop(0)
            await act(received, writer)
            await writer.drain()


def answer(status: int, body: object = None, **headers: str) -> Act:
    """A whole response; `body` is sent as JSON, bytes as they are. Header names take `_` for `-`."""
    data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    head = _head(status, {"content-length": str(len(data)), **headers})

    async def act(_: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(head + data)

    return act


def refusal(status: int, reason: str = "") -> Act:
    """A `Status` as the API server writes it."""
    return answer(status, {"kind": "Status", "code": status, "reason": reason})


async def silence(*_: object) -> None:
    """Never responds."""
    await asyncio.get_running_loop().create_future()


def stream(*parts: bytes, finished: bool = False) -> Act:
    """A chunked response of `parts`, with the closing chunk if it is `finished`; the connection stays open."""
    sent = [*parts, b""] if finished else parts

    async def act(_: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(_head(200, {"transfer-encoding": "chunked"}))
        for part in sent:
            writer.write(b"%x\r\n%s\r\n" % (len(part), part))
            await writer.drain()
        await silence()

    return act


def _head(status: int, headers: dict[str, str]) -> bytes:
    head = f"HTTP/1.1 {status} Because\r\n"
    for name, value in headers.items():
        head += f"{name.replace('_', '-')}: {value}\r\n"
    return f"{head}\r\n".encode()
