"""HTTPS server for admission reviews.

Source: controller-runtime pkg/webhook/{server,admission/http}.go, and its metrics' names.
Differs: handlers are pure functions without I/O.
"""

import asyncio
import socket
import time
from collections.abc import Callable, Mapping
from typing import Final

import structlog
from prometheus_client import Counter, Histogram

from kruise_probe.serving.address import Address, listen
from kruise_probe.serving.http_messages import Request, Response
from kruise_probe.serving.http_server import Handler, HttpListener, Limits, Tls
from kruise_probe.serving.routing import Router
from kruise_probe.webhook import admission
from kruise_probe.webhook.admission import BadReview, Verdict, answer, read
from kruise_probe.webhook.serving_context import ServingContext

Decide = Callable[[admission.Request], Verdict]

MAX_REVIEW_BYTES: Final = 3 * 2**20
"""An API server's limit for a request body; two objects of etcd's maximum size fit."""
ALL_REVIEWS_BYTES: Final = 4 * MAX_REVIEW_BYTES
"""Maximum size of all reviews that are being received or wait to be handled."""
MAX_CONNECTIONS: Final = 512
"""An API server opens one connection per review in flight, and some in advance."""
IDLE_SECONDS: Final = 120.0
"""Longer than the 90 s after which an API server closes an idle connection, so it never reuses one that we closed."""

_REQUESTS: Final = Counter(
    "controller_runtime_webhook_requests_total",
    "Total number of admission requests by HTTP status code.",
    ["webhook", "code"],
)
_LATENCY: Final = Histogram(
    "controller_runtime_webhook_latency_seconds",
    "Histogram of the latency of processing admission requests",
    ["webhook"],
)

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class WebhookServer:
    """Serves until cancelled, as soon as there is a certificate.

    Call `bind` first, so that a port in use is reported at the start.
    """

    name = "webhook"

    def __init__(
        self, address: str, *, flag: str, serving: ServingContext, decide: Mapping[str, Decide]
    ) -> None:
        self._address = address
        self._flag = flag
        self._serving = serving
        self._decide = decide
        self._socket: socket.socket | None = None

    @property
    def port(self) -> int:
        """The actual port; 0 before `bind`."""
        return self._socket.getsockname()[1] if self._socket else 0

    def bind(self) -> None:
        """Bind the port.

        Raises:
            BindError: one line that names the flag, the address and what to do.
        """
        address = Address.parse(self._address, flag=self._flag)
        if address is not None and self._socket is None:
            self._socket = listen(address, flag=self._flag)

    async def run(self) -> None:
        """Wait for a certificate, then serve."""
        self.bind()
        await self._serving.loaded.wait()
        if self._socket is None:  # turned off
            await asyncio.get_running_loop().create_future()
            return
        router = Router()
        for path, decide in self._decide.items():
            router.add("POST", path, _handler(path, decide))
        bound = Address(*self._socket.getsockname()[:2])
        listener = HttpListener(
            self._socket,
            router,
            limits=Limits(
                idle_seconds=IDLE_SECONDS,
                max_body_bytes=MAX_REVIEW_BYTES,
                all_bodies_bytes=ALL_REVIEWS_BYTES,
                max_connections=MAX_CONNECTIONS,
            ),
            tls=Tls(self._serving.when_loaded),
        )
        try:
            await listener.run(
                lambda: _log.info("listening", address=str(bound), paths=sorted(self._decide))
            )
        finally:
            self._socket.close()
            self._socket = None


def _handler(path: str, decide: Decide) -> Handler:
    latency = _LATENCY.labels(path)

    async def handle(request: Request) -> Response:
        started = time.perf_counter()
        try:
            review = read(request.body)
            body = answer(review, decide(review))
        except BadReview as error:
            _REQUESTS.labels(path, 400).inc()
            return Response.of_text(str(error), status=400)
        finally:
            latency.observe(time.perf_counter() - started)
        _REQUESTS.labels(path, 200).inc()
        return Response(body=body, content_type="application/json")

    return handle
