"""A bare client of the API server, so that its loops are a floor. It retries nothing and decodes nothing.

Not the project's own client, which the manager uses.
"""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, Self

import aiohttp
import msgspec
from yarl import URL

from kruise_probe.client.config import ClusterConfig
from kruise_probe.client.request import METADATA_ONLY

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON = "application/json"

REQUEST_SECONDS = 60.0

_REQUESTS = re.compile(r"^apiserver_request_total\{(.*)\} (\S+)$", re.MULTILINE)
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

    @property
    def headers(self) -> dict[str, str]:
        accept = METADATA_ONLY if self.method == "PATCH" else JSON
        return {"Accept": self.accept or accept, "Content-Type": self.content_type}


class Refused(Exception):
    """The server answered with an error."""

    def __init__(self, request: BareRequest, status: int, body: bytes) -> None:
        super().__init__(f"{request.method} {request.path}: {status} {body[:300].decode()}")
        self.status = status


class BareClient:
    """A pool of connections, as many as requests that `each` sends at once; a context manager.

    `sent` counts what went out, by `counted_as`.
    """

    def __init__(self, config: ClusterConfig, *, connections: int) -> None:
        self._config = config
        self._connections = connections
        self.sent: Counter[str] = Counter()

    async def __aenter__(self) -> Self:
        authorization = self._config.credentials.authorization()
        self._server = URL(self._config.server)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=self._config.tls or True),
            headers={"Authorization": authorization} if authorization else {},
            read_bufsize=1 << 24,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    def _send(self, request: BareRequest, seconds: float | None) -> Any:
        return self._session.request(
            request.method,
            self._server.join(URL(request.path, encoded=True)),
            data=request.body or None,
            headers=request.headers,
            timeout=aiohttp.ClientTimeout(total=seconds),
        )

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
        async with self._send(request, REQUEST_SECONDS) as response:
            body: bytes = await response.read()
        if request.counted_as:
            self.sent[request.counted_as] += 1
        if response.status >= 300 and response.status not in accepted:
            raise Refused(request, response.status, body)
        return body

    async def json(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        encoded = msgspec.json.encode(body) if body is not None else b""
        accepted = more.pop("accepted", ())
        answer = await self.call(
            BareRequest(method, path, encoded, **more),
            accepted=accepted,
        )
        return msgspec.json.decode(answer)

    async def each(self, requests: Iterable[BareRequest]) -> None:
        """Sends all of them, as many at once as there are connections."""
        pending = iter(requests)

        async def pump() -> None:
            for request in pending:
                await self.call(request)

        async with asyncio.TaskGroup() as group:
            for _ in range(self._connections):
                group.create_task(pump())

    @asynccontextmanager
    async def watch(self, path: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """The lines of a watch."""
        request = BareRequest("GET", path)
        async with self._send(request, None) as response:
            if response.status != 200:
                raise Refused(request, response.status, await response.read())
            yield response.content

    async def writes(self) -> Counter[str]:
        """Writing requests that the API server counted, by verb and resource, without those of this client."""
        text = (await self.call(BareRequest("GET", "/metrics"))).decode()
        writes: Counter[str] = Counter()
        for labels, value in _REQUESTS.findall(text):
            read = dict(re.findall(r'(\w+)="([^"]*)"', labels))
            if read["verb"] in WRITES and read["resource"] not in _ITS_OWN:
                resource = "/".join(filter(None, (read["resource"], read["subresource"])))
                writes[f"{read['verb']} {resource}"] += int(float(value))
        writes.subtract(self.sent)
        return writes
