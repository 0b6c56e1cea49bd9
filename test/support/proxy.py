"""A proxy in front of an API server that can do what networks and servers do wrong.

Clients talk plain HTTP to it and are let in as whoever `upstream` says; it keeps a log of every request. A proxy per
client tells them apart.

Faults of the connection: latency, `pause` (nothing moves, nothing is lost), `black_hole` (what is sent is lost, and
nobody says so), `reset`. Faults of the server: `fail` answers for it, `cut_watches` ends every watch at once.
"""

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import yaml
from aiohttp import web
from aiohttp.connector import NEEDS_CLEANUP_CLOSED
from yarl import URL

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
class Seen:
    """A request as it came in, at a loop time; `code` is 0 until it is answered, and for ever in a black hole."""

    at: float
    method: str
    path: str
    watch: bool
    field_selector: str
    initial_events: bool
    code: int = 0

    @property
    def writes(self) -> bool:
        return self.method in WRITES

    @property
    def about_leases(self) -> bool:
        return "/leases" in self.path

    @property
    def resource(self) -> str:
        """The plural, and the subresource if there is one: `pods`, `pods/status`."""
        parts = self.path.strip("/").split("/")
        parts = parts[2:] if parts[0] == "api" else parts[3:]
        if len(parts) > 2 and parts[0] == "namespaces":
            parts = parts[2:]
        return "/".join([*parts[:1], *parts[2:3]])


@dataclass
class _Planned:
    code: int
    reason: str
    times: int | None
    retry_after_seconds: int | None
    when: Callable[[Seen], bool]


def always(_: Seen) -> bool:
    return True


@dataclass
class FaultyProxy:
    """See the module; made by `faulty_proxy`."""

    upstream: ClusterConfig
    url: str = ""
    log: list[Seen] = field(default_factory=list)
    latency_seconds: float = 0.0
    cut_watches: Callable[[Seen], bool] | None = None
    _planned: list[_Planned] = field(default_factory=list)
    _moving: asyncio.Event = field(default_factory=asyncio.Event)
    _holes: int = 0
    _in_hole: bool = False
    _open: list[web.Request] = field(default_factory=list)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._moving.set()

    def write_kubeconfig(self, folder: Path, name: str = "proxy") -> Path:
        """A kubeconfig that leads here."""
        path = folder / f"{name}.kubeconfig"
        entry = {"name": "proxy", "cluster": {"server": self.url}}
        context = {"name": "proxy", "context": {"cluster": "proxy", "user": "proxy"}}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [entry],
            "users": [{"name": "proxy", "user": {}}],
            "contexts": [context],
            "current-context": "proxy",
        }
        path.write_text(yaml.safe_dump(config))
        return path

    # What goes wrong.

    def fail(
        self,
        code: int,
        *,
        reason: str = "InternalError",
        times: int | None = None,
        retry_after_seconds: int | None = None,
        when: Callable[[Seen], bool] = always,
    ) -> None:
        """Answers `code` to the next requests that fit, or to all of them until `heal`."""
        self._planned.append(_Planned(code, reason, times, retry_after_seconds, when))

    def pause(self) -> None:
        """Nothing moves any more, in either direction, until `resume`."""
        self._moving.clear()

    def resume(self) -> None:
        self._moving.set()

    def black_hole(self) -> None:
        """Whatever is open stays so and says nothing any more, even after `heal`; so does what comes until then."""
        self._holes += 1
        self._in_hole = True

    def reset(self) -> int:
        """Breaks all connections; returns how many requests were under way on them."""
        broken = list(self._open)
        for request in broken:
            if request.transport is not None:
                request.transport.abort()
        return len(broken)

    def heal(self) -> None:
        """From now on new requests are served as they should be."""
        self._planned.clear()
        self.latency_seconds = 0.0
        self.cut_watches = None
        self._in_hole = False
        self.resume()

    # What was seen.

    def count(self, when: Callable[[Seen], bool] = always, *, since: float = 0.0) -> Counter[str]:
        """Requests by verb and resource, as `watch pods`, `patch pods/status`."""
        return Counter(
            f"{'watch' if each.watch else each.method.lower()} {each.resource}"
            for each in self.log
            if each.at >= since and when(each)
        )

    def writes(self, *, since: float = 0.0, leases: bool = False) -> Counter[str]:
        """Writing requests; those about Leases only where asked for."""
        return self.count(
            lambda each: each.writes and (leases or not each.about_leases), since=since
        )

    async def until(self, what: str, holds: Callable[[], bool], *, seconds: float = 20.0) -> None:
        """Returns once `holds`, looked at whenever a request has come in or was answered."""
        try:
            async with asyncio.timeout(seconds):
                while not holds():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(f"not within {seconds:g} s: {what}; {self.log[-20:]}") from None

    # How.

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        seen = Seen(
            asyncio.get_running_loop().time(),
            request.method,
            request.path,
            request.query.get("watch", "") in ("1", "true"),
            request.query.get("fieldSelector", ""),
            request.query.get("sendInitialEvents", "") == "true",
        )
        self.log.append(seen)
        self._news.set()
        self._open.append(request)
        holes = self._holes
        try:
            if self._in_hole:
                await asyncio.Event().wait()
            await self._moving.wait()
            if self.latency_seconds:
                await asyncio.sleep(self.latency_seconds)
            planned = next((each for each in self._planned if each.when(seen)), None)
            if planned is not None:
                return self._refusal(planned, seen)
            if seen.watch and self.cut_watches is not None and self.cut_watches(seen):
                seen.code = 200
                return web.Response(content_type="application/json")
            return await self._forward(request, seen, holes)
        finally:
            self._open = [each for each in self._open if each is not request]
            self._news.set()

    def _refusal(self, planned: _Planned, seen: Seen) -> web.Response:
        if planned.times is not None:
            planned.times -= 1
            if not planned.times:
                self._planned.remove(planned)
        seen.code = planned.code
        status = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "reason": planned.reason,
            "message": "an error that a test asked for",
            "code": planned.code,
        }
        response = web.Response(
            status=planned.code, text=json.dumps(status), content_type="application/json"
        )
        if planned.retry_after_seconds is not None:
            response.headers["Retry-After"] = str(planned.retry_after_seconds)
        return response

    async def _forward(self, request: web.Request, seen: Seen, holes: int) -> web.StreamResponse:
        body = await request.read()
        url = URL(self.upstream.server + request.raw_path, encoded=True)
        headers = {k: v for k, v in request.headers.items() if k.lower() not in SKIPPED_HEADERS}
        if "Authorization" not in headers:
            authorization = self.upstream.credentials.authorization()
            if authorization:
                headers["Authorization"] = authorization
        try:
            async with self._session.request(
                request.method, url, data=body or None, headers=headers
            ) as answer:
                seen.code = answer.status
                self._news.set()
                kept = {k: v for k, v in answer.headers.items() if k.lower() not in SKIPPED_HEADERS}
                response = web.StreamResponse(status=answer.status, headers=kept)
                await self._unless_lost(holes)
                await response.prepare(request)
                async for chunk in answer.content.iter_any():
                    await self._unless_lost(holes)
                    await response.write(chunk)
                await self._unless_lost(holes)
                return response
        except (aiohttp.ClientError, OSError):
            if request.transport is not None:
                request.transport.abort()
            raise

    async def _unless_lost(self, holes: int) -> None:
        await self._moving.wait()
        if holes != self._holes:
            await asyncio.Event().wait()

    @asynccontextmanager
    async def _serving(self) -> AsyncIterator[None]:
        connector = aiohttp.TCPConnector(
            ssl=self.upstream.tls or True, limit=0, enable_cleanup_closed=NEEDS_CLEANUP_CLOSED
        )
        timeout = aiohttp.ClientTimeout(total=None)
        app = web.Application(client_max_size=8 << 20)
        app.router.add_route("*", "/{path:.*}", self._handle)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as self._session:
            runner = web.AppRunner(
                app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1
            )
            await runner.setup()
            try:
                await web.TCPSite(runner, "127.0.0.1", 0).start()
                self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
                yield
            finally:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(2):
                        await runner.cleanup()


@asynccontextmanager
async def faulty_proxy(upstream: ClusterConfig | str) -> AsyncIterator[FaultyProxy]:
    """A proxy for `upstream`, a configuration or the URL of a server that asks nobody who he is."""
    config = ClusterConfig.plain(upstream) if isinstance(upstream, str) else upstream
    proxy = FaultyProxy(config)
    async with proxy._serving():
        yield proxy
