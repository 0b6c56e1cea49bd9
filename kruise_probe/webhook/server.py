"""The webhook of a manager: an HTTPS server for admission reviews, and its certificates.

Source: controller-runtime pkg/webhook/{server,admission/http}.go, and its metrics' names.
Differs: handlers are pure functions without I/O.
"""

import ssl
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from prometheus_client import Counter, Gauge, Histogram

from kruise_probe.api.errors import FatalError
from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.names import (
    MUTATE_PODS,
    VALIDATE_MARKERS,
    WEBHOOK_CONFIGURATION,
    WEBHOOK_SECRET,
    WEBHOOK_SERVICE,
)
from kruise_probe.api.v1alpha1 import PodProbeMarker
from kruise_probe.client.rest import RestClient
from kruise_probe.serving.certificates import expires_at
from kruise_probe.serving.http_server import HttpHandler, HttpServer, ServerLimits
from kruise_probe.serving.server_tls import CertificateLoader, ServerTls, certificate_files
from kruise_probe.serving.sockets import BindAddress
from kruise_probe.webhook.admission import (
    ALLOWED,
    AdmissionRequest,
    AdmissionResponse,
    BadReview,
    annotate_pod,
    decode_review,
    encode_review,
    review_marker,
)
from kruise_probe.webhook.cert_rotator import CertRotator
from kruise_probe.wire.requests import HttpRequest, HttpResponse

FLAG: Final = "--webhook-addr"
CLIENT_CA_FLAG: Final = "--webhook-client-ca-file"

MAX_REVIEW_BYTES: Final = 3 * 2**20
"""An API server's limit for a request body; two objects of etcd's maximum size fit."""
LIMITS: Final = ServerLimits(
    # Longer than the 90 s after which an API server closes an idle connection: it never reuses one that we closed.
    idle_seconds=120.0,
    max_body_bytes=MAX_REVIEW_BYTES,
    all_bodies_bytes=4 * MAX_REVIEW_BYTES,
    # An API server opens one connection per review in flight, and some in advance.
    max_connections=512,
)

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

_READ: Final = Counter("certwatcher_read_certificate_total", "Total number of certificate reads")
_EXPIRES: Final = Gauge(
    "kruise_probe_webhook_certificate_expires_timestamp_seconds",
    "When the webhook's serving certificate expires, in seconds since 1970.",
)

AdmissionHandler = Callable[[AdmissionRequest], AdmissionResponse]


class WebhookTls(ServerTls):
    """Server TLS with metrics of the certificate, and with client certificates if required."""

    def require_client_certificates(self, authorities: Path) -> None:
        """Accept only clients with a certificate of one of these CAs.

        Raises:
            FatalError: the file cannot be read, or has no certificate.
        """
        try:
            self.context.load_verify_locations(authorities)
        except OSError as error:  # also an ssl.SSLError, which does not name the file
            raise FatalError(
                f"{CLIENT_CA_FLAG}={authorities}: cannot load the CA: {error.strerror}; "
                "use a PEM file of the CA that signs the API server's client certificate"
            ) from error
        self.context.verify_mode = ssl.CERT_REQUIRED

    def load(self, pem: bytes) -> bool:
        """As `ServerTls.load`; also raises ValueError if the certificate cannot be parsed."""
        is_new = super().load(pem)
        if is_new:
            _READ.inc()
            _EXPIRES.set(expires_at(pem).timestamp())
        return is_new


class Webhook(NamedTuple):
    """The webhook of a manager, which must run both parts."""

    certificates: CertificateLoader
    server: HttpServer
    tls: WebhookTls

    def check(self) -> str | None:
        """Readiness check: fails until there is a certificate."""
        return None if self.tls.loaded.is_set() else self.certificates.last_error


def dns_names(namespace: str) -> list[str]:
    """DNS names of the Service; API servers verify the first one."""
    return [f"{WEBHOOK_SERVICE}.{namespace}.svc{domain}" for domain in ("", ".cluster.local")]


def build_webhook(
    client: RestClient,
    address: BindAddress,
    system_namespace: str,
    *,
    markers: Callable[[], Iterable[PodProbeMarker]],
    now: Callable[[], datetime],
    serverless: bool,
    certificate_folder: str = "",
    client_ca_file: str = "",
    allowed_labels: frozenset[str] = frozenset(),
) -> Webhook:
    """Build the webhook and bind its port, without starting it.

    Args:
        client: must be able to write on standbys too, as every replica rotates the certificate.
        address: where to listen.
        system_namespace: namespace of the Service and of the Secret.
        markers: returns all markers from a cache.
        now: the wall clock.
        serverless: feature gate `EnablePodProbeMarkerOnServerless`; while off, pods are admitted unchanged.
        certificate_folder: folder of tls.crt and tls.key; empty to rotate certificates in a Secret of the system namespace.
        client_ca_file: PEM file of the CA that clients need a certificate of; empty: no client certificate is needed.
        allowed_labels: reserved label keys that policies may write anyway.

    Raises:
        BindError: the port is in use.
        FatalError: the client CA file cannot be loaded.
    """
    tls = WebhookTls()
    if client_ca_file:
        tls.require_client_certificates(Path(client_ca_file))

    def mutate_pod(request: AdmissionRequest) -> AdmissionResponse:
        if not serverless:
            return ALLOWED
        of_namespace = (m for m in markers() if m.key.namespace == request.namespace)
        return annotate_pod(request, of_namespace)

    server = review_server(
        address,
        tls,
        {
            VALIDATE_MARKERS: partial(review_marker, allowed_labels=allowed_labels),
            MUTATE_PODS: mutate_pod,
        },
    )
    server.bind()
    if certificate_folder:
        return Webhook(certificate_files(tls, Path(certificate_folder)), server, tls)
    rotator = CertRotator(
        client=client,
        secret=NamespacedName(system_namespace, WEBHOOK_SECRET),
        configuration=WEBHOOK_CONFIGURATION,
        dns_names=dns_names(system_namespace),
        now=now,
    )
    return Webhook(rotator.loader(tls), server, tls)


def review_server(
    address: BindAddress, tls: WebhookTls, reviews: dict[str, AdmissionHandler]
) -> HttpServer:
    """Build a server that decides about admission reviews, by path."""
    return HttpServer(
        address,
        flag=FLAG,
        method="POST",
        handlers={path: _handler(path, review) for path, review in reviews.items()},
        limits=LIMITS,
        tls=tls,
    )


def _handler(path: str, review: AdmissionHandler) -> HttpHandler:
    latency = _LATENCY.labels(path)

    async def handle(request: HttpRequest) -> HttpResponse:
        started = time.perf_counter()
        try:
            decoded = decode_review(request.body)
            body = encode_review(decoded, review(decoded))
        except BadReview as error:
            _REQUESTS.labels(path, 400).inc()
            return HttpResponse.of_text(str(error), status=400)
        finally:
            latency.observe(time.perf_counter() - started)
        _REQUESTS.labels(path, 200).inc()
        return HttpResponse(body=body, content_type="application/json")

    return handle
