"""TLS of our servers: a certificate that can be replaced, self-signed or read from files.

Source: controller-runtime pkg/certwatcher; pkg/metrics/server, which also issues its own certificate at each start.
Differs: polls the files instead of watching their folder; a kubelet takes up to a minute to update them anyway.
"""

import asyncio
import math
import ssl
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, Final

import structlog

from kruise_probe.api.errors import KubeError
from kruise_probe.blocking import run_blocking
from kruise_probe.wire.tls import load_certificate

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


@dataclass
class CertificateLoader:
    """Loads the certificate and key that `read` returns, again every `reload_seconds`, until cancelled."""

    tls: ServerTls
    read: Callable[[], Awaitable[bytes]]
    source: str
    reload_seconds: float
    name: ClassVar = "certificate loader"

    def __post_init__(self) -> None:
        self.last_error = f"no certificate was read yet from {self.source}"

    async def run(self) -> None:
        """While files are being replaced they may not match; the next read gets both again."""
        while True:
            pause = self.reload_seconds
            try:
                if self.tls.load(await self.read()):
                    _log.info("loaded the certificate", source=self.source)
                self.last_error = ""
            except (KubeError, OSError, ValueError, subprocess.SubprocessError) as error:
                pause = POLL_SECONDS
                reason = str(error) or "no response in time"
                if reason != self.last_error:
                    _log.warning(
                        "cannot load the certificate; trying again",
                        source=self.source,
                        error=reason,
                        retry_seconds=pause,
                    )
                self.last_error = reason
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

    read = partial(run_blocking, issue)
    return CertificateLoader(
        tls,
        read,
        source="a subprocess",
        reload_seconds=math.inf,
    )


def certificate_files(tls: ServerTls, folder: Path) -> CertificateLoader:
    """Load `tls.crt` and `tls.key`, such as those of cert-manager mounted from its Secret."""

    def pair() -> bytes:
        return b"\n".join((folder / name).read_bytes() for name in ("tls.crt", "tls.key"))

    read = partial(run_blocking, pair)
    return CertificateLoader(
        tls,
        read,
        source=str(folder),
        reload_seconds=POLL_SECONDS,
    )


def server_context() -> ssl.SSLContext:
    """Create a TLS context for a server, without a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    return context
