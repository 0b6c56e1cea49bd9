"""Request routing by path.

Source: Go net/http ServeMux.
Differs: a route is an exact path or a prefix; there are no redirects.
"""

from collections.abc import Awaitable, Callable

from kruise_probe.serving.http_messages import Request, Response
from kruise_probe.serving.http_server import Handler

HandlerBelow = Callable[[Request, str], Awaitable[Response]]
"""Its second argument is the part of the path after `path/`."""


class Router:
    """Handler that dispatches by path. Unknown paths return 404, other methods 405. HEAD is routed as GET."""

    def __init__(self) -> None:
        self._exact: dict[str, tuple[str, Handler]] = {}
        self._below: dict[str, tuple[str, HandlerBelow]] = {}

    def add(self, method: str, path: str, handler: Handler) -> None:
        self._exact[path] = (method, handler)

    def add_below(self, method: str, path: str, handler: HandlerBelow) -> None:
        self._below[f"{path}/"] = (method, handler)

    async def __call__(self, request: Request) -> Response:
        exact = self._exact.get(request.path)
        if exact is not None:
            method, handler = exact
            return await handler(request) if _fits(request, method) else _not_allowed(method)
        for prefix, (method, below) in self._below.items():
            if request.path.startswith(prefix):
                name = request.path.removeprefix(prefix)
                return (
                    await below(request, name) if _fits(request, method) else _not_allowed(method)
                )
        return Response.of_status(404)


def _fits(request: Request, method: str) -> bool:
    return request.method == method or (request.method == "HEAD" and method == "GET")


def _not_allowed(method: str) -> Response:
    return Response.of_status(405, Allow="GET, HEAD" if method == "GET" else method)
