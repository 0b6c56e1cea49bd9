"""Requests for a program's metrics, with or without a token and TLS."""

import ssl

import aiohttp
from support.patience import PATIENCE_SECONDS
from support.programs import Program

_UNVERIFIED = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
_UNVERIFIED.check_hostname, _UNVERIFIED.verify_mode = False, ssl.CERT_NONE


class Scraped:
    """A program and its metrics."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._address = program.address("/metrics")

    async def healthy(self) -> bool:
        """A health check as by the kubelet, without a token."""
        return (await self.program.get("healthz"))[0] == 200

    async def get(self, path: str, token: str = "", *, scheme: str = "https") -> tuple[int, str]:
        """Status and text; status 0 if no response came."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        limit = aiohttp.ClientTimeout(total=PATIENCE_SECONDS)
        try:
            async with (
                aiohttp.ClientSession(timeout=limit) as session,
                session.get(
                    f"{scheme}://{self._address}/{path}", headers=headers, ssl=_UNVERIFIED
                ) as response,
            ):
                return response.status, await response.text()
        except (aiohttp.ClientError, OSError, TimeoutError):
            return 0, ""
