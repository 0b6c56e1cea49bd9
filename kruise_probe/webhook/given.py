"""Serves with certificates that somebody else keeps as files: cert-manager's, mounted from its Secret.

Source: controller-runtime pkg/certwatcher.
Differs: looks at the files instead of watching their folder; a kubelet takes a minute to bring new ones anyway.
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
    """Reads `tls.crt` and `tls.key` of a folder again and again; cancelled, it keeps what it has loaded."""

    name = "webhook certificates"

    def __init__(self, folder: Path, serving: ServingContext) -> None:
        self._folder = folder
        self._serving = serving
        self.last_error = "no certificate yet"

    async def run(self) -> None:
        """A pair that does not fit is one that is being replaced: the next look will see both."""
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
