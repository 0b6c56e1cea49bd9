"""TLS of the webhook, and a certificate from files, such as those of cert-manager mounted from its Secret.

Source: controller-runtime pkg/certwatcher.
Differs: polls the files instead of watching their folder; a kubelet takes up to a minute to update them anyway.
"""

import asyncio
import ssl
from pathlib import Path
from typing import Final

import structlog
from prometheus_client import Counter, Gauge

from kruise_probe.api.errors import FatalError
from kruise_probe.serving.certificates import expires_at
from kruise_probe.serving.tls import ServerTls

POLL_SECONDS: Final = 5.0

_READ: Final = Counter("certwatcher_read_certificate_total", "Total number of certificate reads")
_EXPIRES: Final = Gauge(
    "kruise_probe_webhook_certificate_expires_timestamp_seconds",
    "When the webhook's serving certificate expires, in seconds since 1970.",
)

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class WebhookTls(ServerTls):
    """Server TLS with metrics of the certificate, and with client certificates if required."""

    def require_client_certificates(self, authorities: Path, *, flag: str) -> None:
        """Accept only clients with a certificate of one of these CAs.

        Raises:
            FatalError: the file cannot be read, or has no certificate.
        """
        try:
            self.context.load_verify_locations(authorities)
        except OSError as error:  # also an ssl.SSLError, which does not name the file
            raise FatalError(
                f"{flag}={authorities}: cannot load the CA: {error.strerror}; "
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


class CertWatcher:
    """Loads `tls.crt` and `tls.key` of a folder, and again whenever they change, until cancelled."""

    name = "webhook certificates"

    def __init__(self, folder: Path, tls: WebhookTls) -> None:
        self._folder = folder
        self._tls = tls
        self.last_error = f"no certificate was read yet from {folder}"

    async def run(self) -> None:
        """Poll the files. While they are being replaced they may not match; the next poll reads both again."""
        while True:
            try:
                if self._tls.load(await asyncio.to_thread(self._read)):
                    _log.info("loaded the webhook's certificate", folder=str(self._folder))
                self.last_error = ""
            except (OSError, ValueError, ssl.SSLError) as error:
                self._failed(str(error))
            await asyncio.sleep(POLL_SECONDS)

    def _read(self) -> bytes:
        return b"\n".join((self._folder / name).read_bytes() for name in ("tls.crt", "tls.key"))

    def _failed(self, reason: str) -> None:
        if reason != self.last_error:
            _log.warning(
                "cannot load the webhook's certificate; trying again",
                folder=str(self._folder),
                error=reason,
                retry_seconds=POLL_SECONDS,
            )
        self.last_error = reason
