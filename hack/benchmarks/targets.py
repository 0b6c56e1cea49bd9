"""Servers that probes connect to; they record the time of each connection."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from benchmarks.reporting import percentile


class TcpPorts:
    """TCP ports that take connections; `arrivals` by port, in loop time."""

    def __init__(self) -> None:
        self.ports: list[int] = []
        self.arrivals: dict[int, list[float]] = defaultdict(list)

    def lateness_seconds(self, period_seconds: float) -> tuple[float, float, int]:
        """Median and 99th percentile of how late connections came, and how many did not come at all.

        A port's earliest connection, counted modulo the period, counts as punctual.
        """
        late: list[float] = []
        missing = 0
        for times in self.arrivals.values():
            ticks = [round((at - times[0]) / period_seconds) for at in times]
            offsets = [at - n * period_seconds for at, n in zip(times, ticks, strict=True)]
            late += [offset - min(offsets) for offset in offsets]
            missing += ticks[-1] + 1 - len(set(ticks))
        missing += len(self.ports) - len(self.arrivals)
        return percentile(late, 0.5), percentile(late, 0.99), missing


@asynccontextmanager
async def tcp_ports(host: str, count: int) -> AsyncIterator[TcpPorts]:
    found = TcpPorts()
    loop = asyncio.get_running_loop()

    class Port(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            port: int = transport.get_extra_info("sockname")[1]
            found.arrivals[port].append(loop.time())

    servers = [
        await loop.create_server(
            Port,
            host,
            0,
            backlog=16,
        )
        for _ in range(count)
    ]
    found.ports = [each.sockets[0].getsockname()[1] for each in servers]
    try:
        yield found
    finally:
        for server in servers:
            server.close()


class Pages:
    """An HTTP server that answers every path with 200 and `body`."""

    def __init__(self) -> None:
        self.port = 0
        self.body = b"idle"

    def answer(self) -> bytes:
        head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
        return head % len(self.body) + self.body


@asynccontextmanager
async def pages(host: str) -> AsyncIterator[Pages]:
    found = Pages()

    class Page(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            self._transport = transport
            self._request = b""

        def data_received(self, data: bytes) -> None:
            self._request += data
            if b"\r\n\r\n" in self._request:
                self._transport.write(found.answer())
                self._transport.close()

    server = await asyncio.get_running_loop().create_server(
        Page,
        host,
        0,
        backlog=1024,
    )
    found.port = server.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        server.close()
