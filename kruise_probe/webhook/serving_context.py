"""TLS context of the webhook; its certificate can be replaced while serving.

Source: controller-runtime pkg/certwatcher.
Differs: the caller passes the certificate in. Open connections keep the certificate of their handshake.
"""

import asyncio
import ssl
from pathlib import Path
from typing import Final

from cryptography import x509
from prometheus_client import Counter, Gauge

from kruise_probe.api.errors import FatalError
from kruise_probe.serving.tls import load_pair

_READ: Final = Counter("certwatcher_read_certificate_total", "Total number of certificate reads")
_EXPIRES: Final = Gauge(
    "kruise_probe_webhook_certificate_expires_timestamp_seconds",
    "When the certificate that the webhook serves with ends, in seconds since 1970",
)


class ServingContext:
    """Owns the TLS `context`; use it once `loaded` is set."""

    def __init__(self) -> None:
        self.context: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.options |= ssl.OP_NO_RENEGOTIATION
        self.loaded: Final = asyncio.Event()
        self._served = b""

    async def when_loaded(self) -> ssl.SSLContext:
        await self.loaded.wait()
        return self.context

    def require_clients_of(self, authorities: Path, *, flag: str) -> None:
        """Require client certificates of one of these CAs.

        Raises:
            FatalError: the file cannot be read, or has no certificate.
        """
        try:
            self.context.load_verify_locations(authorities)
        except (OSError, ValueError) as error:  # an ssl.SSLError does not name the file
            raise FatalError(
                f"{flag}={authorities}: cannot be used: {error.strerror if isinstance(error, OSError) else error}; "
                "give a PEM file of the CA that signs the API server's client certificate"
            ) from error
        self.context.verify_mode = ssl.CERT_REQUIRED

    def load(self, certificate: bytes, key: bytes) -> bool:
        """Use this pair from the next handshake on; False if it was loaded already.

        Raises:
            ssl.SSLError: certificate and key do not match, or are malformed.
        """
        if certificate == self._served:
            return False
        load_pair(self.context, certificate, key)
        self._served = certificate
        _READ.inc()
        expires_at = x509.load_pem_x509_certificate(certificate).not_valid_after_utc
        _EXPIRES.set(expires_at.timestamp())
        self.loaded.set()
        return True
