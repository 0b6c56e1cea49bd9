"""An HTTP server of a process: its address, its socket and its paths.

Source: controller-runtime pkg/manager/internal.go and pkg/metrics/server; Go net/http ServeMux.
Differs: one server can serve health and metrics (the daemon's does). Its port then accepts HTTP and HTTPS: kubelet's
probes use plain HTTP, and tokens should use TLS. The router does not redirect.
"""

import asyncio
import socket
from collections.abc import Mapping
from typing import Final

import structlog

from kruise_probe.serving.address import BindAddress, BindError, listen
from kruise_probe.serving.connections import Limits
from kruise_probe.serving.http_messages import HttpRequest, HttpResponse
from kruise_probe.serving.http_server import HttpHandler, HttpListener
from kruise_probe.serving.tls import ServerTls

DEFAULT_LIMITS: Final = Limits()

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class HttpServer:
    """Serves handlers by path at one address. They accept only `method`; GET includes HEAD.

    A path that ends with a slash is a prefix. Call `bind` before anything starts, so that a port in use is the first
    message in the log. `run` serves until cancelled, then closes the port.
    """

    def __init__(
        self,
        address: str,
        *,
        flag: str,
        handlers: Mapping[str, HttpHandler],
        method: str = "GET",
        limits: Limits = DEFAULT_LIMITS,
        tls: ServerTls | None = None,
    ) -> None:
        self.name = f"HTTP server of {flag}"
        self._configured = address
        self._flag = flag
        self._router = Router(method, handlers)
        self._limits = limits
        self._tls = tls
        self._socket: socket.socket | None = None

    @property
    def address(self) -> BindAddress | None:
        """The bound address with its actual port; None if turned off or not bound."""
        return BindAddress(*self._socket.getsockname()[:2]) if self._socket else None

    @property
    def port(self) -> int:
        """The actual port; 0 if turned off or not bound."""
        return self.address.port if self.address else 0

    def bind(self) -> None:
        """Bind the port; no-op if the server is turned off or already bound.

        Raises:
            BindError: one line that names the flag, the address and what to do.
        """
        try:
            address = BindAddress.parse(self._configured)
        except ValueError as error:
            raise BindError(f"{self._flag}: {error}") from error
        if address is not None and self._socket is None:
            self._socket = listen(address, flag=self._flag)

    def close(self) -> None:
        """Release the port. Needed only if `run` is not called after `bind`."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    async def run(self) -> None:
        """Serve until cancelled; if turned off, only wait for cancellation.

        Raises:
            BindError: as `bind`, if it was not called before.
        """
        self.bind()
        if self._socket is None:
            await asyncio.get_running_loop().create_future()
            return
        listener = HttpListener(self._socket, self._router, limits=self._limits, tls=self._tls)
        _log.info("listening", address=str(self.address), paths=self._router.paths)
        try:
            await listener.run()
        finally:
            self.close()


class Router:
    """Dispatches requests by path. Unknown paths return 404, other methods 405."""

    def __init__(self, method: str, handlers: Mapping[str, HttpHandler]) -> None:
        self._methods = ("GET", "HEAD") if method == "GET" else (method,)
        self._handlers = dict(handlers)

    @property
    def paths(self) -> list[str]:
        return sorted(self._handlers)

    async def __call__(self, request: HttpRequest) -> HttpResponse:
        handler = self._handlers.get(request.path) or self._of_prefix(request.path)
        if handler is None:
            return HttpResponse.of_status(404)
        if request.method not in self._methods:
            return HttpResponse.of_status(405, Allow=", ".join(self._methods))
        return await handler(request)

    def _of_prefix(self, path: str) -> HttpHandler | None:
        for prefix, handler in self._handlers.items():
            if prefix.endswith("/") and path.startswith(prefix):
                return handler
        return None
