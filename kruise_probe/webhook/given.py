"""Certificates from files, such as those of cert-manager mounted from its Secret.

Source: controller-runtime pkg/certwatcher.
Differs: polls the files instead of watching their folder; a kubelet takes up to a minute to update them anyway.
"""

import asyncio
import ssl
from pathlib import Path
from typing import Final

import structlog

from kruise_probe.webhook.serving_context import ServingContext

POLL_SECONDS: Final = 5.0

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class GivenCertificates:
    """Polls `tls.crt` and `tls.key` in a folder until cancelled, and loads changed pairs."""

    name = "webhook certificates"

    def __init__(self, folder: Path, serving: ServingContext) -> None:
        self._folder = folder
        self._serving = serving
        self.last_error = "no certificate yet"

    async def run(self) -> None:
        """Load the pair every `POLL_SECONDS`. A pair that does not match is being replaced; the next poll reads both."""
        while True:
            try:
                pair = await asyncio.to_thread(self._read)
                if self._serving.load(*pair):
                    _log.info("serving with a certificate", folder=str(self._folder))
                self.last_error = ""
            except (OSError, ValueError, ssl.SSLError) as error:
                self._failed(str(error))
            await asyncio.sleep(POLL_SECONDS)

    def _read(self) -> tuple[bytes, bytes]:
        return (self._folder / "tls.crt").read_bytes(), (self._folder / "tls.key").read_bytes()

    def _failed(self, reason: str) -> None:
        if reason != self.last_error:
            _log.warning("cannot read the webhook's certificate", error=reason)
        self.last_error = reason
