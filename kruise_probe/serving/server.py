"""The HTTP servers of a process: /healthz, /readyz and /metrics.

Source: controller-runtime pkg/manager/internal.go and pkg/metrics/server; kube-apiserver's healthz responses.
Differs: one server can serve all three paths (the daemon's does). Its port then accepts HTTP and HTTPS: kubelet's
probes use plain HTTP, and tokens should use TLS. A failed check returns 503, not 500.
"""

import asyncio
import socket
from collections.abc import Mapping

import structlog

from kruise_probe.serving.address import Address, listen
from kruise_probe.serving.health import Checks
from kruise_probe.serving.http_messages import Request, Response
from kruise_probe.serving.http_server import Handler, HttpListener, Limits, Tls
from kruise_probe.serving.routing import Router
from kruise_probe.serving.self_signed import SelfSignedContext

log = structlog.get_logger(__name__)

IDLE_SECONDS = 15.0


class HttpServer:
    """Serves handlers by path at one address.

    Call `bind` before anything starts, so that a port in use is the first message in the log. `run` serves until
    cancelled, then closes the port. With `tls` the server also accepts TLS, with a self-signed certificate.
    """

    def __init__(
        self,
        address: str,
        *,
        flag: str,
        handlers: "Mapping[str, Handler | HealthEndpoint]",
        tls: bool = False,
    ) -> None:
        self._text = address
        self._self_signed = SelfSignedContext() if tls else None
        self._flag = flag
        self._handlers = dict(handlers)
        self._socket: socket.socket | None = None

    @property
    def address(self) -> Address | None:
        """The bound address with its actual port; None if turned off or not bound."""
        if self._socket is None:
            return None
        host, port = self._socket.getsockname()[:2]
        return Address(host, port)

    def bind(self) -> None:
        """Bind the port; no-op if the server is turned off or already bound.

        Raises:
            BindError: one line that names the flag, the address and what to do.
        """
        address = Address.parse(self._text, flag=self._flag)
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
        self_signed = self._self_signed
        listener = HttpListener(
            self._socket,
            self._router(),
            limits=Limits(idle_seconds=IDLE_SECONDS),
            tls=Tls(self_signed, required=False) if self_signed else None,
        )
        try:
            async with asyncio.TaskGroup() as group:
                if self_signed:
                    group.create_task(self_signed.run(), name="self-signed certificate")
                group.create_task(listener.run(self._log_address), name="listener")
        finally:
            self.close()

    def _log_address(self) -> None:
        log.info("listening", address=str(self.address), paths=sorted(self._handlers))

    def _router(self) -> Router:
        router = Router()
        for path, handler in self._handlers.items():
            if isinstance(handler, HealthEndpoint):
                router.add("GET", path, handler.all)
                router.add_below("GET", path, handler.one)
            else:
                router.add("GET", path, handler)
        return router


class HealthEndpoint:
    """Returns 200 `ok`, or 503 with all results. `?verbose` always lists results, `?exclude=name` skips a check.

    Each check also has a path of its own: `/readyz/runtime`.
    """

    def __init__(self, endpoint: str, checks: Checks) -> None:
        self._endpoint = endpoint
        self._checks = checks

    async def all(self, request: Request) -> Response:
        report = await self._checks.report(exclude=frozenset(request.query.get("exclude", ())))
        if not report.healthy:
            return Response.of_text(report.text(self._endpoint), status=503)
        listed = "verbose" in request.query
        return Response.of_text(report.text(self._endpoint) if listed else "ok")

    async def one(self, request: Request, name: str) -> Response:
        """Run one check: 200 `ok`, 503 with the problem, or 404. An empty name runs all checks."""
        if not name:
            return await self.all(request)
        result = await self._checks.report_one(name)
        if result is None:
            return Response.of_status(404)
        if result.problem is None:
            return Response.of_text("ok")
        return Response.of_text(f"{name} failed: {result.problem}\n", status=503)
