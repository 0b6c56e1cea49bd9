"""A TCP server with a script for each connection; it records the requests."""

import asyncio
import socket
import ssl
import struct
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from support.connections import listening
from support.patience import PATIENCE_SECONDS

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class ScriptedServer:
    """`requests` are the heads of HTTP requests; of `connections` those `ended` whose script is over."""

    host: str
    port: int = 0
    connections: int = 0
    ended: int = 0
    requests: list[str] = field(default_factory=list)
    one_ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def until_ended(self, connections: int) -> None:
        """Waits until that many connections have ended."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while self.ended < connections:
                self.one_ended.clear()
                await self.one_ended.wait()


@asynccontextmanager
async def serving(
    script: Callable[[ScriptedServer], Script],
    *,
    host: str = "127.0.0.1",
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[ScriptedServer]:
    server = ScriptedServer(host)
    act = script(server)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.connections += 1
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await act(reader, writer)
        writer.close()
        with suppress(OSError, asyncio.CancelledError):
            await writer.wait_closed()
        server.ended += 1
        server.one_ended.set()

    async with listening(connected, host=host, tls=tls) as server.port:
        yield server


def reset(writer: asyncio.StreamWriter) -> None:
    """End the connection with a reset."""
    linger = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()


def silent() -> Callable[[ScriptedServer], Script]:
    """Accepts the connection and sends nothing."""

    async def script(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        while await reader.read(4096):
            pass

    return lambda _: script


def answering(
    *parts: bytes | Callable[[str], bytes],
    pause_seconds: float = 0.0,
    stays_open: bool = False,
) -> Callable[[ScriptedServer], Script]:
    """Reads one request and sends `parts` with a pause between them; a function makes one of the request."""

    def of(server: ScriptedServer) -> Script:
        async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            request = await _read_request(server, reader)
            for part in parts:
                writer.write(part(request) if callable(part) else part)
                await writer.drain()
                await asyncio.sleep(pause_seconds)
            if stays_open:
                _ = await reader.read()

        return script

    return of


async def _read_request(server: ScriptedServer, reader: asyncio.StreamReader) -> str:
    head = await reader.readuntil(b"\r\n\r\n")
    server.requests.append(head.decode())
    return head.decode()


def flooding(start: bytes, flood: bytes) -> Callable[[ScriptedServer], Script]:
    """Reads one request, sends `start`, and repeats `flood`."""

    def of(server: ScriptedServer) -> Script:
        async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await _read_request(server, reader)
            writer.write(start)
            while True:
                writer.write(flood)
                await writer.drain()

        return script

    return of


def self_signed(folder: Path, *, protocols: tuple[str, ...] = ("http/1.1",)) -> ssl.SSLContext:
    """A server's TLS context with a self-signed certificate."""
    key = folder / "key.pem"
    certificate = folder / "certificate.pem"
    if not key.exists():
        command = [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "1",
            "-subj",
            "/CN=nobody",
        ]
        command += ["-keyout", str(key), "-out", str(certificate)]
        _ = subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.set_alpn_protocols(list(protocols))
    return context
