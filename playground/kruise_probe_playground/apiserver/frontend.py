"""The HTTP handler chain: authenticates a request, routes it, sends the response.

Source: apiserver pkg/server/config.go (DefaultBuildHandlerChain), pkg/endpoints/request.
Differs: the only authentication is a table of bearer tokens; requests of web pages are refused.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final

import msgspec
import structlog
from aiohttp import web

from kruise_probe_playground.apiserver import failures
from kruise_probe_playground.apiserver.authentication import (
    REVIEWS,
    Tokens,
    check_no_impersonation,
    check_no_web_page,
    check_token,
    review_response,
)
from kruise_probe_playground.apiserver.commands import serve_command
from kruise_probe_playground.apiserver.discovery import Documents
from kruise_probe_playground.apiserver.failures import Failure
from kruise_probe_playground.apiserver.forwarding import serve_ports
from kruise_probe_playground.apiserver.handlers import Call, VerbHandlers, call_for
from kruise_probe_playground.apiserver.logs import Containers, open_log, running_container
from kruise_probe_playground.apiserver.registry import Registry

_JSON: Final = "application/json"
_HEALTH: Final = ("healthz", "livez", "readyz")
MAX_BODY_BYTES: Final = 3 << 20
BODY_SECONDS: Final = 30.0
"""How long a client may take to send its body."""
WRITE_SECONDS: Final = 30.0
"""How long a client may take to accept a frame of a watch or a log."""

_log = structlog.get_logger(__name__)


def abort(transport: asyncio.WriteTransport) -> None:
    """Close a connection without waiting for the client.

    In Python 3.11.2 `abort` fails on a TLS connection that was closed twice; newer versions do nothing then.
    """
    with suppress(AttributeError):
        transport.abort()


class Frontend:
    """The handler of all requests.

    Args:
        tokens: every request but health checks needs one of them; without any, every request is accepted.
        containers: for logs and commands.
    """

    def __init__(self, registry: Registry, *, tokens: Tokens, containers: Containers) -> None:
        self._registry = registry
        self._tokens = tokens
        self._containers = containers
        self._handlers = VerbHandlers(registry)
        self._documents = Documents(registry.kinds.values())

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Respond to any request; to a failed one with its metav1.Status."""
        try:
            check_no_web_page(request.headers)
            if request.path.strip("/").partition("/")[0] in _HEALTH:
                return web.Response(text="ok")
            check_token(request.headers.get("Authorization", ""), self._tokens)
            check_no_impersonation(request.headers)
            if document := self._documents.respond(request):
                return document
            if request.method == "POST" and request.path in REVIEWS:
                return await self._review(request)
            call = await self._call(request)
            if call.verb == "watch":
                return await self._watch(request, call)
            if call.path.subresource in ("log", "exec", "portforward"):
                return await self._pod_stream(request, call)
            return self._respond(call)
        except Failure as failure:
            return failure_response(failure)
        except RecursionError:
            return failure_response(failures.bad_request("the body nests too deeply; flatten it"))
        except Exception as error:
            if isinstance(error, ConnectionError) or request.writer.output_size:
                raise  # aiohttp ends a connection with a part of a response
            _log.exception(
                "request failed",
                method=request.method,
                path=request.path,
            )
            why = f"Internal error occurred: {type(error).__name__}: {error}"
            return failure_response(Failure(500, "InternalError", why))

    async def _call(self, request: web.Request) -> Call:
        path = request.rel_url.raw_path
        query = dict(request.query)
        headers = {name.lower(): value for name, value in request.headers.items()}
        call = call_for(
            self._registry,
            request.method,
            path,
            query,
            headers,
        )
        return call._replace(body=await _body_of(request))

    async def _review(self, request: web.Request) -> web.Response:
        content_type = request.headers.get("Content-Type", "")
        body = await _body_of(request)
        review = review_response(request.path, body, content_type, self._tokens)
        return web.json_response(review, status=201)

    def _respond(self, call: Call) -> web.Response:
        code, body = self._handlers.respond(call)
        return web.Response(status=code, body=body, content_type=_JSON)

    async def _watch(self, request: web.Request, call: Call) -> web.StreamResponse:
        watch = self._handlers.watch(call)
        try:
            return await self._stream(request, watch.frames(), _JSON)
        finally:
            watch.close()

    async def _pod_stream(self, request: web.Request, call: Call) -> web.StreamResponse:
        kind = call.kind
        key = call.path.key
        if call.path.subresource == "log":
            log = open_log(
                self._registry,
                key,
                call.query,
                self._containers,
            )
            empty = web.Response(status=204)
            return await self._stream(request, log, "text/plain") if log else empty
        pod = kind.decode(self._registry.get(kind, key))
        if call.path.subresource == "exec":
            container = running_container(pod, call.query.get("container", ""))
            return await serve_command(request, container, self._containers)
        if not (ip := pod["status"].get("podIP")):
            raise failures.bad_request(f"pod {key.name} has no address yet")
        return await serve_ports(request, key.name, ip)

    async def _stream(
        self, request: web.Request, frames: AsyncIterator[bytes], content_type: str
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": content_type})
        response.enable_chunked_encoding()
        try:
            await response.prepare(request)
            async for frame in frames:
                async with asyncio.timeout(WRITE_SECONDS):
                    await response.write(frame)
        except (TimeoutError, ConnectionError) as error:
            _log.debug(
                "client ended its stream",
                path=request.path,
                error=str(error),
            )
            if request.transport is not None:
                abort(request.transport)
        return response


async def _body_of(request: web.Request) -> bytes:
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await request.read() if request.can_read_body else b""
    except TimeoutError:
        raise Failure(408, "Timeout", "the body of the request did not arrive in time") from None
    except web.HTTPRequestEntityTooLarge:
        why = f"Request entity too large: limit is {MAX_BODY_BYTES}"
        raise Failure(413, "RequestEntityTooLarge", why) from None


def failure_response(failure: Failure) -> web.Response:
    """The failure's metav1.Status with its code."""
    body = msgspec.json.encode(failure.status)
    return web.Response(
        status=failure.code,
        body=body,
        content_type=_JSON,
    )
