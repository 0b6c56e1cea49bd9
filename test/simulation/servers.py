"""The API servers of a simulation: they serve requests from the registry of the embedded API server, without HTTP."""

import asyncio
from collections.abc import Coroutine
from contextvars import Context
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

import msgspec

from kruise_probe.client.request import METADATA_ONLY, Request
from kruise_probe.client.transport import Response
from kruise_probe_playground.apiserver.failures import Failure
from kruise_probe_playground.apiserver.handlers import Call, VerbHandlers, call_for
from kruise_probe_playground.apiserver.registry import Registry
from kruise_probe_playground.apiserver.watching import Watch

T = TypeVar("T")


class ApiServers:
    """Two API servers over one registry. The watches of a frozen server deliver nothing until it is thawed.

    `caller` is the process whose request is being served, or `world`; `sent_at` is when it sent that.
    """

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.frozen: set[int] = set()
        self.thawed = asyncio.Event()
        self.caller = "world"
        self.sent_at = 0.0
        self._handlers = VerbHandlers(registry)
        self._in_flight: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, T], context: Context) -> asyncio.Task[T]:
        """Start a task that outlives the process that caused it."""
        task = asyncio.create_task(work, context=context)
        self._in_flight.add(task)
        task.add_done_callback(self._in_flight.discard)
        return task

    def freeze(self, server: int) -> None:
        self.frozen.add(server)
        self.thawed.clear()

    def thaw(self) -> None:
        self.frozen.clear()
        self.thawed.set()

    def call(self, request: Request, user_agent: str) -> Call:
        """Parse a request; raises Failure for paths and verbs that do not exist."""
        url = urlsplit(request.target)
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        headers = {
            "accept": METADATA_ONLY if request.metadata_only else "application/json",
            "content-type": request.content_type,
            "user-agent": user_agent,
        }
        call = call_for(
            self.registry,
            request.method,
            url.path,
            query,
            headers,
        )
        return call._replace(body=request.body or b"")

    def respond(self, request: Request, user_agent: str, sent_at: float = 0.0) -> Response:
        self.caller = user_agent
        self.sent_at = sent_at
        try:
            answer = self._handlers.respond(self.call(request, user_agent))
        except Failure as failure:
            return refusal(failure)
        finally:
            self.caller = "world"
        return Response(answer.code, answer.body)

    def watch(self, request: Request, user_agent: str) -> Watch:
        """Open a watch; raises Failure."""
        return self._handlers.watch(self.call(request, user_agent))


def refusal(failure: Failure) -> Response:
    return Response(failure.code, msgspec.json.encode(failure.status))
