"""A proxy in front of an API server that causes faults of networks and servers.

Clients use plain HTTP; the proxy adds the credentials of `upstream` and logs every request. One proxy for each client
keeps their requests apart.

Faults of the connection: `pause` (data is delayed, not lost), `black_hole` (data is lost without an error), `reset`.
Faults of the server: `fail` returns an error instead of it, `hold` forwards a request late.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import aiohttp
from aiohttp import web
from aiohttp.connector import NEEDS_CLEANUP_CLOSED
from support.kubeconfig import kubeconfig_for
from support.patience import PATIENCE_SECONDS
from support.wire import typed
from yarl import URL

from kruise_probe.api.times import loop_time
from kruise_probe.client.config import ClusterConfig

SKIPPED_HEADERS = frozenset(
    {
        "host",
        "connection",
        "content-length",
        "transfer-encoding",
        "content-encoding",
        "accept-encoding",
    }
)
WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})


@dataclass
class SeenRequest:
    """A request; `at` is loop time. `code` is 0 until the response, and always in a black hole."""

    at: float
    method: str
    path: str
    watch: bool
    field_selector: str
    initial_events: bool
    authorization: str
    code: int = 0

    @property
    def verb(self) -> str:
        return "watch" if self.watch else self.method.lower()

    @property
    def writes(self) -> bool:
        return self.method in WRITES

    @property
    def about_leases(self) -> bool:
        return "/leases" in self.path

    def is_work(self) -> bool:
        return self.writes and not self.about_leases

    @property
    def resource(self) -> str:
        """The plural, and the subresource if there is one: `pods`, `pods/status`."""
        parts = self.path.strip("/").split("/")
        parts = parts[2:] if parts[0] == "api" else parts[3:]
        if len(parts) > 2 and parts[0] == "namespaces":
            parts = parts[2:]
        return "/".join([*parts[:1], *parts[2:3]])


When = Callable[[SeenRequest], bool]


class _Planned(NamedTuple):
    code: int
    when: When


class _Held(NamedTuple):
    seconds: float
    when: When


def always(_: SeenRequest) -> bool:
    return True


@dataclass
class FaultyProxy:
    """See the module; made by `faulty_proxy`."""

    upstream: ClusterConfig
    url: str = ""
    log: list[SeenRequest] = field(default_factory=list)
    _planned: list[_Planned] = field(default_factory=list)
    _held: list[_Held] = field(default_factory=list)
    _moving: asyncio.Event = field(default_factory=asyncio.Event)
    _holes: int = 0
    _in_hole: bool = False
    _opened: WeakKeyDictionary[Any, int] = field(default_factory=WeakKeyDictionary)
    _open: list[web.Request] = field(default_factory=list)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._moving.set()

    def write_kubeconfig(self, folder: Path, name: str = "proxy") -> Path:
        """A kubeconfig for this proxy."""
        return kubeconfig_for(self.url, folder, name)

    # Faults.

    def fail(self, code: int, *, when: When = always) -> None:
        """Returns `code` for all matching requests until `heal`."""
        self._planned.append(_Planned(code, when))

    def hold(self, seconds: float, *, when: When) -> None:
        """Forwards matching requests so much later until `heal`, as an admission webhook does that responds late."""
        self._held.append(_Held(seconds, when))

    def pause(self) -> None:
        """Delays all data in both directions until `heal`."""
        self._moving.clear()

    def black_hole(self) -> None:
        """Loses all data of open connections, even after `heal`, and of new ones until `heal`."""
        self._holes += 1
        self._in_hole = True

    def reset(self) -> int:
        """Breaks all connections; returns the number of requests in flight."""
        broken = list(self._open)
        for request in broken:
            if request.transport:
                request.transport.abort()
        return len(broken)

    def heal(self) -> None:
        """Ends all faults for new requests."""
        self._planned.clear()
        self._held.clear()
        self._in_hole = False
        self._moving.set()

    # The log.

    def count(self, when: When = always, *, since: float = 0.0) -> Counter[str]:
        """Requests by verb and resource, as `watch pods`, `patch pods/status`."""
        requests = [request for request in self.log if request.at >= since and when(request)]
        return Counter(f"{request.verb} {request.resource}" for request in requests)

    def writes(self, *, since: float = 0.0) -> Counter[str]:
        """Writing requests, without those for Leases."""
        return self.count(SeenRequest.is_work, since=since)

    async def until(
        self,
        what: str,
        holds: Callable[[], object],
        *,
        seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """Returns once `holds`; checks it after each request and response."""
        try:
            async with asyncio.timeout(seconds):
                while not holds():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(f"not within {seconds:g} s: {what}; {self.log[-20:]}") from None

    # The server.

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        query = request.query
        seen = SeenRequest(
            loop_time(),
            request.method,
            request.path,
            query.get("watch") in ("1", "true"),
            query.get("fieldSelector", ""),
            query.get("sendInitialEvents") == "true",
            request.headers.get("Authorization", ""),
        )
        self.log.append(seen)
        self._news.set()
        self._open.append(request)
        holes = self._opened.setdefault(request.transport, self._holes)
        try:
            if self._in_hole:
                await asyncio.Event().wait()
            await self._unless_lost(holes)
            for held in self._held:
                if held.when(seen):
                    await asyncio.sleep(held.seconds)
            for planned in self._planned:
                if planned.when(seen):
                    return self._refusal(planned.code, seen)
            return await self._forward(request, seen, holes)
        finally:
            self._open = [other for other in self._open if other is not request]
            self._news.set()

    def _refusal(self, code: int, seen: SeenRequest) -> web.Response:
        seen.code = code
        status = typed(
            "Status",
            status="Failure",
            reason="InternalError",
            message="an error that a test asked for",
            code=code,
        )
        return web.json_response(status, status=code)

    async def _forward(
        self,
        request: web.Request,
        seen: SeenRequest,
        holes: int,
    ) -> web.StreamResponse:
        headers = _kept(request.headers)
        if "Authorization" not in headers:
            authorization = self.upstream.credentials.authorization()
            if authorization:
                headers["Authorization"] = authorization
        forwarded = self._session.request(
            request.method,
            URL(self.upstream.server + request.raw_path, encoded=True),
            data=await request.read() or None,
            headers=headers,
        )
        try:
            async with forwarded as answer:
                seen.code = answer.status
                self._news.set()
                response = web.StreamResponse(status=answer.status, headers=_kept(answer.headers))
                await self._unless_lost(holes)
                await response.prepare(request)
                async for chunk in answer.content.iter_any():
                    await self._unless_lost(holes)
                    await response.write(chunk)
                await self._unless_lost(holes)
                return response
        except (aiohttp.ClientError, OSError):
            if request.transport:
                request.transport.abort()
            raise

    async def _unless_lost(self, holes: int) -> None:
        await self._moving.wait()
        if holes != self._holes:
            await asyncio.Event().wait()

    @asynccontextmanager
    async def _serving(self) -> AsyncIterator[None]:
        connector = aiohttp.TCPConnector(
            ssl=self.upstream.tls or True,
            limit=0,
            enable_cleanup_closed=NEEDS_CLEANUP_CLOSED,
        )
        timeout = aiohttp.ClientTimeout(total=None)
        app = web.Application(client_max_size=8 << 20)
        app.router.add_route("*", "/{path:.*}", self._handle)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as self._session:
            runner = web.AppRunner(
                app,
                access_log=None,
                handler_cancellation=True,
                shutdown_timeout=0.1,
            )
            await runner.setup()
            try:
                await web.TCPSite(runner, "127.0.0.1", 0).start()
                self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
                yield
            finally:
                with suppress(TimeoutError):
                    async with asyncio.timeout(2):
                        await runner.cleanup()


def _kept(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in SKIPPED_HEADERS}


@asynccontextmanager
async def faulty_proxy(upstream: ClusterConfig) -> AsyncIterator[FaultyProxy]:
    proxy = FaultyProxy(upstream)
    async with proxy._serving():
        yield proxy
