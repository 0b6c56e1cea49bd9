"""A layer-4 load balancer or slow link in front of an API server: it passes bytes on, and knows no HTTP.

`FaultyProxy` causes the faults that a server itself would have.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from support.connections import listening
from support.kubeconfig import kubeconfig_for
from yarl import URL

CHUNK_BYTES = 1024


@dataclass
class Balancer:
    """Passes each new connection to `upstream`.

    Attributes:
        upstream: URL of the server for new connections.
        max_open: connections that are passed on at once.
        resets: what happens to further ones: reset if true; otherwise they are accepted and wait for one to end.
        bytes_per_second: speed of each direction, shared by all connections; 0 is unlimited.
        accepted: number of connections so far.
    """

    upstream: str
    max_open: int = 1_000_000
    resets: bool = False
    bytes_per_second: int = 0
    accepted: int = 0
    port: int = 0
    url: str = ""
    _free: asyncio.Semaphore = field(init=False)
    _links: tuple[asyncio.Lock, asyncio.Lock] = field(init=False)

    def __post_init__(self) -> None:
        self._free = asyncio.Semaphore(self.max_open)
        self._links = (asyncio.Lock(), asyncio.Lock())

    @asynccontextmanager
    async def running(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> AsyncIterator["Balancer"]:
        """Listens on a free port by default. With `tls`, it decrypts what it passes on."""
        async with listening(
            self._connected,
            host=host,
            port=port,
            tls=tls,
        ) as port:
            self.port = port
            self.url = f"http://{host}:{port}"
            yield self

    def write_kubeconfig(self, folder: Path, name: str = "balancer") -> Path:
        return kubeconfig_for(self.url, folder, name)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        if self.resets and self._free.locked():
            writer.transport.abort()
            return
        async with self._free:
            url = URL(self.upstream)
            below, above = await asyncio.open_connection(url.host, url.port)
            up, down = self._links
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._pump(reader, above, up))
                    group.create_task(self._pump(below, writer, down))
            finally:
                above.transport.abort()
                writer.transport.abort()

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        link: asyncio.Lock,
    ) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(CHUNK_BYTES):
                if self.bytes_per_second:
                    async with link:
                        await asyncio.sleep(len(data) / self.bytes_per_second)
                writer.write(data)
                await writer.drain()
        writer.close()
