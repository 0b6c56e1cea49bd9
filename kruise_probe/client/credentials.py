"""Who we are to the API server, for as long as we run: tokens rotate, and nobody restarts for it.

Source: client-go transport/token_source.go.
Differs: a refused token is read again at once, and the request is sent once more with the new one;
client-go's next request does that.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import structlog

from kruise_probe.api.errors import FatalError

log = structlog.get_logger(__name__)

REREAD_SECONDS = 60.0
"""How often a token file is looked at: kubelet replaces a token long before it ends."""


class ConfigError(FatalError):
    """The way to the API server cannot be made out; one line that says what, where and what to do."""


class Credentials(Protocol):
    """Gives the `Authorization` header."""

    def authorization(self) -> str | None:
        """The header's value now, or None where a client certificate, or nobody, speaks for us."""
        ...

    async def renew(self, refused: str | None) -> bool:
        """Called when the server refused `refused` with 401; True when something else can be tried."""
        ...


class StaticCredentials:
    """What stays as it is: a literal token, basic authentication, a certificate, or nothing."""

    def __init__(self, authorization: str | None = None) -> None:
        self._authorization = authorization

    def authorization(self) -> str | None:
        return self._authorization

    async def renew(self, refused: str | None) -> bool:
        return refused != self._authorization


class TokenFile:
    """A bearer token in a file that somebody else replaces.

    The file is looked at no more than once in `REREAD_SECONDS` and read when it changed. A file that
    cannot be read leaves the last token in place.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._authorization: str | None = None
        self._look_at = float("-inf")

    def authorization(self) -> str | None:
        now = asyncio.get_running_loop().time()
        if now >= self._look_at:
            self._look_at = now + REREAD_SECONDS
            self._read_if_changed()
        return self._authorization

    async def renew(self, refused: str | None) -> bool:
        self._seen = None
        self._read_if_changed()
        return self._authorization != refused

    def _read_if_changed(self) -> None:
        try:
            stat = self._path.stat()
            if (stat.st_mtime_ns, stat.st_ino) == self._seen:
                return
            token = self._path.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            return
        if token:
            self._seen = (stat.st_mtime_ns, stat.st_ino)
            self._authorization = f"Bearer {token}"


class ReloadedCredentials:
    """Credentials of a kubeconfig, whose exec plugin or token file may have newer ones when asked again.

    `load` blocks (it may run a program), so it runs in a thread; requests that were refused meanwhile
    share one run. It raises ConfigError when it has nothing; then the refusal stands.
    """

    def __init__(self, authorization: str | None, load: Callable[[], str | None]) -> None:
        self._authorization = authorization
        self._load = load
        self._renewing = asyncio.Lock()

    def authorization(self) -> str | None:
        return self._authorization

    async def renew(self, refused: str | None) -> bool:
        async with self._renewing:
            if self._authorization == refused:
                try:
                    self._authorization = await asyncio.to_thread(self._load)
                except ConfigError as error:
                    log.warning("credentials could not be renewed", error=str(error))
            return self._authorization != refused
