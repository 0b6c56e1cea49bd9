"""TLS of our servers: a context with a replaceable certificate, which is self-signed or read from files.

Source: controller-runtime pkg/certwatcher; pkg/metrics/server, which also issues its own certificate at each start.
Differs: polls the files instead of watching their folder; a kubelet takes up to a minute to update them anyway.
"""

import asyncio
import math
import ssl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from kruise_probe.client.credentials import load_certificate, run_in_daemon_thread

ISSUE_SECONDS: Final = 30.0
POLL_SECONDS: Final = 5.0
"""Between two reads of files, and after a failed read."""

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


class CertificateLoader:
    """Loads the certificate and key that `read` returns, again every `reload_seconds`, until cancelled."""

    name = "certificate loader"

    def __init__(
        self, tls: ServerTls, read: Callable[[], bytes], *, source: str, reload_seconds: float
    ) -> None:
        self._tls = tls
        self._read = read
        self._source = source
        self._reload_seconds = reload_seconds
        self.last_error = f"no certificate was read yet from {source}"

    async def run(self) -> None:
        """While files are being replaced they may not match; the next read gets both again."""
        while True:
            pause = self._reload_seconds
            try:
                if self._tls.load(await run_in_daemon_thread(self._read)):
                    _log.info("loaded the certificate", source=self._source)
                self.last_error = ""
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                pause = POLL_SECONDS
                if str(error) != self.last_error:
                    _log.warning(
                        "cannot load the certificate; trying again",
                        source=self._source,
                        error=str(error),
                        retry_seconds=pause,
                    )
                self.last_error = str(error)
            await asyncio.sleep(pause)


def self_signed_certificate(tls: ServerTls) -> CertificateLoader:
    """Issue a certificate for /metrics. It protects against eavesdropping only; clients do not verify it.

    A subprocess creates it, because importing `cryptography` would use 10 MB in each daemon.
    """
    command = [sys.executable, "-m", "kruise_probe.serving.certificates"]

    def issue() -> bytes:
        return subprocess.run(
            command, capture_output=True, timeout=ISSUE_SECONDS, check=True
        ).stdout

    return CertificateLoader(tls, issue, source="a subprocess", reload_seconds=math.inf)


def certificate_files(tls: ServerTls, folder: Path) -> CertificateLoader:
    """Load `tls.crt` and `tls.key`, such as those of cert-manager mounted from its Secret."""

    def read() -> bytes:
        return b"\n".join((folder / name).read_bytes() for name in ("tls.crt", "tls.key"))

    return CertificateLoader(tls, read, source=str(folder), reload_seconds=POLL_SECONDS)


def server_context() -> ssl.SSLContext:
    """Create a TLS context for a server, without a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    return context
