"""Who we are to the API server, for as long as we run: tokens and certificates rotate, and nobody restarts for it.

Source: client-go transport/token_source.go and cert_rotation.go, plugin/pkg/client/auth/exec.
Differs: what was refused is read again at once, and the request is sent once more with the new one; client-go's
next request does that. Certificates are looked at when they are refused, neither at intervals nor on their expiry.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

import structlog

from kruise_probe.api.errors import FatalError
from kruise_probe.client.blocking import in_daemon_thread

log = structlog.get_logger(__name__)

REREAD_SECONDS = 60.0
"""How often a token file is looked at: kubelet replaces a token long before it ends."""


class ConfigError(FatalError):
    """The way to the API server cannot be made out; one line that says what, where and what to do."""


class Credentials(Protocol):
    """Gives the `Authorization` header, and tells when the client certificate is another."""

    @property
    def version(self) -> int:
        """Grows with each new client certificate; connections that presented an older one are used no more."""
        ...

    def authorization(self) -> str | None:
        """The header's value now, or None where a client certificate, or nobody, speaks for us."""
        ...

    async def renew(self, refused: str | None, since: int = 0) -> bool:
        """Called when the server answered 401 to a request with the header `refused`, sent at version `since`.

        True when something else can be tried.
        """
        ...

    def close(self) -> None:
        """Ends what is under way; they may be used again."""
        ...


class StaticCredentials:
    """What stays as it is: a literal token, or nothing."""

    version = 0

    def __init__(self, authorization: str | None = None) -> None:
        self._authorization = authorization

    def authorization(self) -> str | None:
        return self._authorization

    async def renew(self, refused: str | None, since: int = 0) -> bool:
        return refused != self._authorization

    def close(self) -> None:
        pass


class TokenFile:
    """A bearer token in a file that somebody else replaces.

    The file is looked at no more than once in `REREAD_SECONDS` and read when it changed. A file that
    cannot be read leaves the last token in place.
    """

    version = 0

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

    async def renew(self, refused: str | None, since: int = 0) -> bool:
        self._seen = None
        self._read_if_changed()
        return self._authorization != refused

    def close(self) -> None:
        pass

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


class Identity(NamedTuple):
    """Who a kubeconfig says that we are.

    Attributes:
        authorization: the header's value, if any.
        certificate_file: PEM of the client certificate, if any; `key_file` its key, where that stands elsewhere.
        content: what both files held, as their names may stay.
    """

    authorization: str | None
    certificate_file: str = ""
    key_file: str | None = None
    content: bytes = b""


class ReloadedCredentials:
    """Credentials of a kubeconfig, whose exec plugin or files may have newer ones when asked again.

    `load` blocks (it may run a program), so it runs in a thread; whoever is refused before a run has ended takes
    that run's answer. It goes on when all who wait have given up: a slow plugin serves the next request. `close`
    ends it; a client that shares these credentials and waits is refused then. `present` makes new connections present a certificate that is new; it runs on the loop.
    Both raise ConfigError when they have nothing; then the refusal stands.
    """

    def __init__(
        self,
        identity: Identity,
        load: Callable[[], Identity],
        present: Callable[[Identity], None] = lambda _: None,
    ) -> None:
        self.version = 0
        self._identity = identity
        self._load = load
        self._present = present
        self._renewing: asyncio.Task[None] | None = None

    def authorization(self) -> str | None:
        return self._identity.authorization

    async def renew(self, refused: str | None, since: int = 0) -> bool:
        if self._is(refused, since):
            if self._renewing is None:
                self._renewing = asyncio.create_task(self._reload(), name="renewal of credentials")
                self._renewing.add_done_callback(self._reloaded)
            await asyncio.wait((self._renewing,))  # unlike awaiting it: our end is not its end
        return not self._is(refused, since)

    def close(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()

    async def _reload(self) -> None:
        try:
            self._take(await in_daemon_thread(self._load))
        except ConfigError as error:
            log.warning("credentials could not be renewed", error=str(error))

    def _reloaded(self, task: asyncio.Task[None]) -> None:
        self._renewing = None
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("credentials could not be renewed", exc_info=error)

    def _is(self, authorization: str | None, version: int) -> bool:
        return (self._identity.authorization, self.version) == (authorization, version)

    def _take(self, found: Identity) -> None:
        if found.certificate_file and found[1:] != self._identity[1:]:
            self._present(found)
            self.version += 1
            log.info("new client certificate is presented", file=found.certificate_file)
        self._identity = found
