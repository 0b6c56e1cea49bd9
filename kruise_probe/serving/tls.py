"""TLS of our servers: a context with a replaceable certificate, and a self-signed certificate for /metrics.

Source: controller-runtime pkg/certwatcher; pkg/metrics/server, which also issues its own certificate at each start.
Differs: the caller passes the certificate in. Open connections keep the certificate of their handshake.
"""

import asyncio
import os
import ssl
import subprocess
import sys
from typing import Final

import structlog

from kruise_probe.client.threads import run_in_daemon_thread

ISSUE_SECONDS: Final = 30.0
RETRY_SECONDS: Final = 10.0

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class ServerTls:
    """Owns the TLS context of a server, which has no certificate until `load` is called."""

    def __init__(self) -> None:
        self.context: Final = server_context()
        self.loaded: Final = asyncio.Event()
        self._loaded_pem = b""

    def load(self, pem: bytes) -> bool:
        """Use this certificate and key from the next handshake on; False if they are already in use.

        Raises:
            ssl.SSLError: certificate and key do not match, or are malformed. Those before stay in use.
        """
        if pem == self._loaded_pem:
            return False
        # First into another context: a failed load would leave ours without a key.
        load_certificate(server_context(), pem)
        load_certificate(self.context, pem)
        self._loaded_pem = pem
        self.loaded.set()
        return True


class SelfSignedCertificate:
    """Issues a certificate for /metrics. It protects against eavesdropping only; clients do not verify it.

    A subprocess creates it, because importing `cryptography` would use 10 MB in each daemon.
    """

    name = "self-signed certificate"

    def __init__(self, tls: ServerTls) -> None:
        self._tls = tls

    async def run(self) -> None:
        """Issue the certificate, with retries, then wait until cancelled."""
        while not self._tls.loaded.is_set():
            try:
                self._tls.load(await run_in_daemon_thread(_issue_in_subprocess))
            except (OSError, subprocess.SubprocessError) as error:
                _log.warning(
                    "cannot issue a certificate for /metrics; trying again",
                    error=str(error),
                    retry_seconds=RETRY_SECONDS,
                )
                await asyncio.sleep(RETRY_SECONDS)
        await asyncio.get_running_loop().create_future()


def _issue_in_subprocess() -> bytes:
    command = [sys.executable, "-m", "kruise_probe.serving.certificates"]
    return subprocess.run(command, capture_output=True, timeout=ISSUE_SECONDS, check=True).stdout


def server_context() -> ssl.SSLContext:
    """Create a TLS context for a server, without a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    return context


def load_certificate(context: ssl.SSLContext, pem: bytes) -> None:
    """Load a certificate and its key; later handshakes use them.

    ssl reads files only and the root file system is read-only, so this writes them to a memory file.

    Raises:
        ssl.SSLError: certificate and key do not match, or are malformed.
    """
    descriptor = os.memfd_create("certificate")
    try:
        os.write(descriptor, pem)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
