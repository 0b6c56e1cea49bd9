"""Self-signed certificate for /metrics over TLS. It protects against eavesdropping only; clients do not verify it.

A short-lived subprocess creates it, because importing `cryptography` would use 10 MB in each daemon.

Source: controller-runtime pkg/metrics/server, which creates one at each start.
Differs: valid for ten years, longer than any process runs.
"""

import asyncio
import ssl
import subprocess
import sys
from datetime import timedelta
from typing import Final, NamedTuple

import structlog

from kruise_probe.client.threads import run_in_daemon_thread
from kruise_probe.serving.tls import load_pair

MAKING_SECONDS: Final = 30.0
RETRY_SECONDS: Final = 10.0
LIFETIME: Final = timedelta(days=3650)

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

_BETWEEN: Final = b"\0"


class Pair(NamedTuple):
    """Certificate and key in PEM."""

    certificate: bytes
    key: bytes


class SelfSignedContext:
    """Server TLS context; `run` creates its certificate, and callers wait until it exists."""

    def __init__(self) -> None:
        self._context: ssl.SSLContext | None = None
        self._made = asyncio.Event()

    async def __call__(self) -> ssl.SSLContext:
        await self._made.wait()
        assert self._context is not None
        return self._context

    async def run(self) -> None:
        """Create the certificate, with retries until it succeeds."""
        while self._context is None:
            try:
                self._context = server_context(await run_in_daemon_thread(_make_pair_in_subprocess))
            except (OSError, subprocess.SubprocessError) as error:
                _log.warning("cannot make a certificate for /metrics", error=str(error))
                await asyncio.sleep(RETRY_SECONDS)
        self._made.set()


def server_context(pair: Pair) -> ssl.SSLContext:
    """Create a server TLS context with this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    load_pair(context, pair.certificate, pair.key)
    return context


def _make_pair_in_subprocess() -> Pair:
    command = [sys.executable, "-m", __name__]
    done = subprocess.run(command, capture_output=True, timeout=MAKING_SECONDS, check=True)
    certificate, _, key = done.stdout.partition(_BETWEEN)
    return Pair(certificate, key)


def make_pair() -> Pair:
    """Create a key and a certificate signed with it."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    from kruise_probe.api.times import utc_now

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kruise-probe metrics")])
    now = utc_now()
    certificate = x509.CertificateBuilder(
        issuer_name=name,
        subject_name=name,
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=now - timedelta(hours=1),
        not_valid_after=now + LIFETIME,
    ).sign(key, hashes.SHA256())
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return Pair(certificate.public_bytes(serialization.Encoding.PEM), private)


if __name__ == "__main__":
    sys.stdout.buffer.write(_BETWEEN.join(make_pair()))
