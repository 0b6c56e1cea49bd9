"""The TLS context that the webhook serves with, whose certificate can be replaced while it serves.

Source: controller-runtime pkg/certwatcher.
Differs: the certificate is handed in; connections that are open keep the one they began with.
"""

import asyncio
import os
import ssl
from typing import Final

from cryptography import x509
from prometheus_client import Counter, Gauge

_READ: Final = Counter("certwatcher_read_certificate_total", "Total number of certificate reads")
_EXPIRES: Final = Gauge(
    "kruise_probe_webhook_certificate_expires_timestamp_seconds",
    "When the certificate that the webhook serves with ends, in seconds since 1970",
)


class ServingContext:
    """`context` is to listen with, once `loaded` is set."""

    def __init__(self) -> None:
        self.context: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.loaded: Final = asyncio.Event()
        self._served = b""

    def load(self, certificate: bytes, key: bytes) -> bool:
        """Serves with this pair from the next handshake on; False when it did already.

        Raises:
            ssl.SSLError: they do not belong together, or are none.
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


def load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Makes `context` serve with this pair, without a file on disk.

    Raises:
        ssl.SSLError: they do not belong together, or are none.
    """
    # ssl reads files only, and the root file system is read-only in a pod.
    descriptor = os.memfd_create("certificate")
    try:
        os.write(descriptor, certificate + key)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
