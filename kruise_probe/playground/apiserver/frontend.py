"""HTTP: finds out what a request is about, lets faults have their way, answers.

Source: apiserver pkg/server/config.go (DefaultBuildHandlerChain), pkg/endpoints/request.
Differs: bearer tokens of a table are all the authentication there is; web pages are refused.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final

import msgspec
import structlog
from aiohttp import web

from kruise_probe.playground.apiserver import reviews
from kruise_probe.playground.apiserver.browsers import check_no_web_page
from kruise_probe.playground.apiserver.discovery import Discovery, version
from kruise_probe.playground.apiserver.failures import (
    Failure,
    Target,
    forbidden,
    no_such_path,
    too_large_body,
    unauthorized,
)
from kruise_probe.playground.apiserver.faults import Asked, Faults
from kruise_probe.playground.apiserver.handlers import (
    Call,
    Handlers,
    check_route,
    encode_failure,
    verb_of,
)
from kruise_probe.playground.apiserver.openapi import OpenApi
from kruise_probe.playground.apiserver.registry import Registry
from kruise_probe.playground.apiserver.requests import parse_path
from kruise_probe.playground.apiserver.users import Tokens, user_of
from kruise_probe.playground.apiserver.watching import Watch

_JSON: Final = "application/json"
_HEALTH: Final = ("healthz", "livez", "readyz")
MAX_BODY_BYTES: Final = 3 << 20
BODY_SECONDS: Final = 30.0
"""How long a client may take to send its body."""
WRITE_SECONDS: Final = 30.0
"""How long a client may take to accept a frame of a watch."""

Authorize = Callable[[str, str, str, str], bool]

_log = structlog.get_logger(__name__)


class Frontend:
    """The one request handler. Keeps the watches that run, so that tests can drop them."""

    def __init__(
        self,
        registry: Registry,
        faults: Faults,
        *,
        tokens: Tokens,
        authorize: Authorize | None,
    ) -> None:
        self._registry = registry
        self._faults = faults
        self._tokens = tokens
        self._authorize = authorize
        self._handlers = Handlers(registry)
        self._discovery = Discovery(registry.kinds.values())
        self._openapi = OpenApi(registry.kinds.values())
        self._running: dict[Watch, web.Request] = {}
        self._audible = asyncio.Event()
        self._audible.set()

    def drop_watches(self, *, abruptly: bool) -> int:
        """Ends all watches; see the server."""
        running = list(self._running.items())
        for watch, request in running:
            watch.watcher.close()
            if request.transport is not None and (abruptly or not self._audible.is_set()):
                request.transport.abort()
        return len(running)

    def black_hole(self, *, on: bool) -> None:
        """Silences watches, or lets them speak again."""
        if on:
            self._audible.clear()
        else:
            self._audible.set()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answers any request; refusals as metav1.Status."""
        asked = Asked("", "", "", "")
        try:
            check_no_web_page(request.headers)
            if request.path.strip("/").partition("/")[0] in _HEALTH:
                return web.Response(text="ok")
            user = self._authenticated(request)
            plain = self._plain(request)
            if plain is not None:
                return plain
            if request.method == "POST" and request.path in reviews.PATHS:
                return await self._review(request, user)
            call = await self._call(request)
            asked = Asked(call.verb, call.resource, call.path.namespace, call.path.name)
            self._check_allowed(user, asked, call.kind.group)
            if call.verb == "watch":
                return await self._watch(request, call, asked)
            return await self._answer(call, asked)
        except Failure as failure:
            self._count(asked, failure.code)
            return _refusal(failure)

    def _authenticated(self, request: web.Request) -> str:
        if not self._tokens:
            return ""
        user = user_of(request.headers.get("Authorization", ""), self._tokens)
        if user is None:
            raise unauthorized()
        return user.name

    def _check_allowed(self, user: str, asked: Asked, group: str) -> None:
        if self._authorize is None or not self._tokens:
            return
        if not self._authorize(user, asked.verb, asked.resource, asked.namespace):
            where = "at the cluster scope"
            if asked.namespace:
                where = f'in the namespace "{asked.namespace}"'
            why = (
                f'User "{user}" cannot {asked.verb} resource "{asked.resource}" in API group'
                f' "{group}" {where}'
            )
            raise forbidden(Target(group, asked.resource.partition("/")[0], "", asked.name), why)

    def _plain(self, request: web.Request) -> web.Response | None:
        """Answers what is not about objects; None for what is."""
        path = request.path.strip("/")
        if path == "version":
            return _json(version())
        if path.partition("/")[0] == "openapi":
            return self._openapi.answer(request)
        if not path:
            return _json(
                {"paths": ["/api", "/api/v1", "/apis", "/healthz", "/openapi/v3", "/version"]}
            )
        found = self._discovery.answer(path, request.headers.get("Accept", ""))
        if found is None:
            return None
        document, content_type = found
        return web.Response(
            body=msgspec.json.encode(document), headers={"Content-Type": content_type}
        )

    async def _call(self, request: web.Request) -> Call:
        path = parse_path(request.rel_url.raw_path)
        kind = path and self._registry.kind_at(path.group, path.version, path.plural)
        if path is None or kind is None:
            raise no_such_path()
        query = dict(request.query)
        verb = verb_of(request.method, path, query)
        check_route(kind, path, verb)
        headers = {name.lower(): value for name, value in request.headers.items()}
        body = await _body_of(request)
        return Call(verb, kind, path, query, headers, body)

    async def _review(self, request: web.Request, user: str) -> web.Response:
        asked = Asked("create", request.path.rpartition("/")[2], "", "")
        self._check_allowed(user, asked, request.path.split("/")[2])
        self._faults.check(asked)
        answer = reviews.answer_review(
            request.path, await _body_of(request), tokens=self._tokens, allows=self._allows
        )
        self._count(asked, 201)
        return web.json_response(answer, status=201)

    def _allows(self, user: str, verb: str, path: str) -> bool:
        return self._authorize is None or self._authorize(user, verb, path, "")

    async def _answer(self, call: Call, asked: Asked) -> web.Response:
        faults = self._faults
        faults.in_flight += 1
        faults.peak_in_flight = max(faults.peak_in_flight, faults.in_flight)
        try:
            if faults.latency_seconds:
                await asyncio.sleep(faults.latency_seconds)
            faults.check(asked)
            answer = self._handlers.answer(call)
        finally:
            faults.in_flight -= 1
        self._count(asked, answer.code)
        response = web.Response(status=answer.code, body=answer.body, content_type=_JSON)
        for each in answer.warnings:
            response.headers.add("Warning", f'299 - "{_quoted(each)}"')
        return response

    async def _watch(self, request: web.Request, call: Call, asked: Asked) -> web.StreamResponse:
        self._faults.check(asked)
        watch = self._handlers.watch(call)
        self._count(asked, 200)
        self._running[watch] = request
        response = web.StreamResponse(headers={"Content-Type": _JSON})
        response.enable_chunked_encoding()
        try:
            await response.prepare(request)
            async for frame in self._audible_frames(watch):
                async with asyncio.timeout(WRITE_SECONDS):
                    await response.write(frame)
        except (TimeoutError, ConnectionError) as error:
            _log.debug("watch ended by its client", resource=asked.resource, error=str(error))
            if request.transport is not None:
                request.transport.abort()
        finally:
            del self._running[watch]
            watch.close()
        return response

    async def _audible_frames(self, watch: Watch) -> AsyncIterator[bytes]:
        async for frame in watch.frames():
            if not self._audible.is_set():
                await self._silence(watch)
            yield frame
        await self._silence(watch)

    async def _silence(self, watch: Watch) -> None:
        while not self._audible.is_set() and not watch.watcher.closed:
            await self._audible.wait()

    def _count(self, asked: Asked, code: int) -> None:
        self._faults.requests[asked.verb, asked.resource, code] += 1


async def _body_of(request: web.Request) -> bytes:
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await request.read() if request.can_read_body else b""
    except TimeoutError:
        raise Failure(408, "Timeout", "the body of the request did not arrive in time") from None
    except web.HTTPRequestEntityTooLarge:
        raise too_large_body(MAX_BODY_BYTES) from None


def _json(document: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(document), content_type=_JSON)


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _refusal(failure: Failure) -> web.Response:
    response = web.Response(status=failure.code, body=encode_failure(failure), content_type=_JSON)
    if failure.retry_after_seconds is not None:
        response.headers["Retry-After"] = str(failure.retry_after_seconds)
    return response
