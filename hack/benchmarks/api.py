"""A bare client of the API server: as little work per request as Python allows, so that its loops are a floor.

Not the project's own client: it counts nothing, retries nothing and decodes nothing.
"""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

import msgspec

from kruise_probe.client.config import ClusterConfig
from kruise_probe.client.request import METADATA_ONLY

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON = "application/json"

REQUEST_SECONDS = 60.0

_REQUESTS = re.compile(r"^apiserver_request_total\{(.*)\} (\S+)$", re.MULTILINE)
_CPU = re.compile(r"^process_cpu_seconds_total (\S+)$", re.MULTILINE)
_ITS_OWN = ("leases", "endpointslices", "flowschemas", "prioritylevelconfigurations")
"""What the API server writes about itself."""

WRITES = ("POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION")


class BareRequest(NamedTuple):
    """`counted_as`: the verb and resource by which the API server counts it, where that matters.

    `accept`: the media type of the response; without it, a patch requests only metadata, as a whole object that is
    not read costs the API server its encoding, and with large ones a stalled connection.
    """

    method: str
    path: str
    body: bytes = b""
    content_type: str = JSON
    counted_as: str = ""
    accept: str = ""


class Refused(Exception):
    """The server answered with an error."""

    def __init__(self, request: BareRequest, status: int, body: bytes) -> None:
        super().__init__(f"{request.method} {request.path}: {status} {body[:300].decode()}")
        self.status = status


class Usage(NamedTuple):
    """What the API server counted so far: writing requests by verb and resource, and its own CPU seconds."""

    writes: Counter[str]
    cpu_seconds: float


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self._writer = writer

    def send(self, head: bytes, body: bytes) -> None:
        self._writer.write(head + body)

    async def status_and_headers(self) -> tuple[int, bytes]:
        head = await self.reader.readuntil(b"\r\n\r\n")
        return int(head[9:12]), head.lower()

    async def body(self, head: bytes) -> bytes:
        if b"\r\ntransfer-encoding: chunked" in head:
            parts = []
            while part := await self.chunk():
                parts.append(part)
            return b"".join(parts)
        length = re.search(rb"\r\ncontent-length: (\d+)", head)
        return await self.reader.readexactly(int(length[1])) if length else b""

    async def chunk(self) -> bytes:
        size = int(await self.reader.readuntil(b"\r\n"), 16)
        return (await self.reader.readexactly(size + 2))[:-2]

    def close(self) -> None:
        self._writer.close()


class BareClient:
    """A pool of `connections` kept connections; a context manager. `sent` counts what went out, by `counted_as`."""

    def __init__(self, config: ClusterConfig, *, connections: int) -> None:
        self._config = config
        self._connections = connections
        self._free: asyncio.Queue[_Connection] = asyncio.Queue()
        self._all: list[_Connection] = []
        authorization = config.credentials.authorization()
        self._common = (
            f"Host: {urlsplit(config.server).netloc}\r\n"
            "User-Agent: kruise-probe-bench\r\n"
            + (f"Authorization: {authorization}\r\n" if authorization else "")
        )
        self.sent: Counter[str] = Counter()

    async def __aenter__(self) -> Self:
        for _ in range(self._connections):
            connection = await self._connect()
            self._all.append(connection)
            self._free.put_nowait(connection)
        return self

    async def __aexit__(self, *_: object) -> None:
        for connection in self._all:
            connection.close()

    async def _connect(self) -> _Connection:
        server = urlsplit(self._config.server)
        reader, writer = await asyncio.open_connection(
            server.hostname, server.port, ssl=self._config.tls, limit=1 << 24
        )
        return _Connection(reader, writer)

    def _head(self, request: BareRequest) -> bytes:
        body = (
            f"Content-Type: {request.content_type}\r\nContent-Length: {len(request.body)}\r\n"
            if request.body
            else ""
        )
        accept = request.accept or (METADATA_ONLY if request.method == "PATCH" else JSON)
        head = f"{request.method} {request.path} HTTP/1.1\r\n{self._common}Accept: {accept}\r\n"
        return f"{head}{body}\r\n".encode()

    async def call(
        self,
        request: BareRequest,
        *,
        accepted: tuple[int, ...] = (),
    ) -> bytes:
        """Sends one request and returns the body of its answer.

        Raises:
            Refused: an answer of 300 or more that is not among `accepted`.
        """
        connection = await self._free.get()
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                try:
                    status, body = await self._exchange(connection, request)
                except (asyncio.IncompleteReadError, ConnectionError):
                    # Closed by the server while it was idle: as every client does, once more on a new one.
                    connection.close()
                    self._all.remove(connection)
                    connection = await self._connect()
                    self._all.append(connection)
                    status, body = await self._exchange(connection, request)
        except BaseException:
            connection.close()
            raise
        self._free.put_nowait(connection)
        if request.counted_as:
            self.sent[request.counted_as] += 1
        if status >= 300 and status not in accepted:
            raise Refused(request, status, body)
        return body

    async def _exchange(self, connection: _Connection, request: BareRequest) -> tuple[int, bytes]:
        connection.send(self._head(request), request.body)
        status, head = await connection.status_and_headers()
        return status, await connection.body(head)

    async def json(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        encoded = msgspec.json.encode(body) if body is not None else b""
        accepted = more.pop("accepted", ())
        answer = await self.call(
            BareRequest(method, path, encoded, **more),
            accepted=accepted,
        )
        return msgspec.json.decode(answer)

    async def each(
        self,
        requests: Iterable[BareRequest],
        *,
        accepted: tuple[int, ...] = (),
        on_done: Callable[[], object] = lambda: None,
    ) -> None:
        """Sends all of them, as many at once as there are connections."""
        pending = iter(requests)

        async def pump() -> None:
            for request in pending:
                await self.call(request, accepted=accepted)
                on_done()

        async with asyncio.TaskGroup() as group:
            for _ in range(self._connections):
                group.create_task(pump())

    @asynccontextmanager
    async def watch(self, path: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """The lines of a watch, on a connection of its own."""
        connection = await self._connect()
        try:
            connection.send(self._head(BareRequest("GET", path)), b"")
            status, head = await connection.status_and_headers()
            if status != 200:
                raise Refused(
                    BareRequest("GET", path),
                    status,
                    await connection.body(head),
                )
            yield _lines(connection)
        finally:
            connection.close()

    async def usage(self, verbs: Collection[str] = WRITES) -> Usage:
        """What the API server counted, without what this client sent."""
        text = (await self.call(BareRequest("GET", "/metrics"))).decode()
        writes: Counter[str] = Counter()
        for labels, value in _REQUESTS.findall(text):
            read = dict(re.findall(r'(\w+)="([^"]*)"', labels))
            if read["verb"] in verbs and read["resource"] not in _ITS_OWN:
                resource = "/".join(filter(None, (read["resource"], read["subresource"])))
                writes[f"{read['verb']} {resource}"] += int(float(value))
        writes.subtract(self.sent)
        cpu = _CPU.search(text)
        return Usage(writes, float(cpu[1]) if cpu else 0.0)


async def _lines(connection: _Connection) -> AsyncIterator[bytes]:
    left = b""
    while chunk := await connection.chunk():
        *lines, left = (left + chunk).split(b"\n")
        for line in lines:
            yield line
