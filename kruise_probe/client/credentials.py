"""Credentials for the API server. Tokens and certificates rotate without a restart.

Source: client-go transport/token_source.go and cert_rotation.go, plugin/pkg/client/auth/exec.
Differs: after a 401, credentials are reloaded at once and the request is retried; in client-go, the next request uses
the new ones. A client certificate is compared with its files once a minute, as tokens are.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

import structlog

from kruise_probe.api.errors import FatalError
from kruise_probe.client.threads import run_in_daemon_thread

_log = structlog.get_logger(__name__)

REREAD_SECONDS = 60.0
"""How often a token file is read. kubelet replaces a token long before it expires."""


class ConfigError(FatalError):
    """The client configuration is invalid. The message is one line: what is wrong, where, and what to do."""


class Credentials(Protocol):
    """The `Authorization` header, and the version of the client certificate."""

    @property
    def version(self) -> int:
        """Increases with each new client certificate. Connections with an older version are not reused."""
        ...

    def authorization(self) -> str | None:
        """Return the current header value, or None with a client certificate or without credentials."""
        ...

    async def renew(self, rejected: str | None, since: int = 0) -> bool:
        """Reload the credentials after a 401 for the header `rejected` at version `since`.

        Return True if a retry would use other credentials.
        """
        ...

    def close(self) -> None:
        """Cancel a renewal in flight. The credentials can still be used."""
        ...


class StaticCredentials:
    """Credentials that never change: a literal token, or none."""

    version = 0

    def __init__(self, authorization: str | None = None) -> None:
        self._authorization = authorization

    def authorization(self) -> str | None:
        return self._authorization

    async def renew(self, rejected: str | None, since: int = 0) -> bool:
        return rejected != self._authorization

    def close(self) -> None:
        pass


class TokenFile:
    """A bearer token in a file that another process replaces, such as kubelet.

    The file is read at most once per `REREAD_SECONDS`. If it cannot be read, the last token is kept.
    """

    version = 0

    def __init__(self, path: Path) -> None:
        self._path = path
        self._authorization: str | None = None
        self._read_at = float("-inf")

    def authorization(self) -> str | None:
        now = asyncio.get_running_loop().time()
        if now >= self._read_at:
            self._read_at = now + REREAD_SECONDS
            self._read()
        return self._authorization

    async def renew(self, rejected: str | None, since: int = 0) -> bool:
        self._read()
        return self._authorization != rejected

    def close(self) -> None:
        pass

    def _read(self) -> None:
        try:
            token = self._path.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            return
        if token:
            self._authorization = f"Bearer {token}"


class KubeconfigUser(NamedTuple):
    """The user of a kubeconfig.

    Attributes:
        authorization: value of the Authorization header, if any.
        certificate_file: PEM file of the client certificate, if any.
        key_file: PEM file of its key, if that is a separate file.
        content: content of both files, because it may change while the names do not.
    """

    authorization: str | None
    certificate_file: str = ""
    key_file: str | None = None
    content: bytes = b""

    @classmethod
    def read(cls, authorization: str | None, certificate: str, key: str | None) -> "KubeconfigUser":
        """Read the files. Raises OSError."""
        content = b"\n".join(Path(name).read_bytes() for name in (certificate, key) if name)
        return cls(authorization, certificate, key, content)

    def certificate_changed(self) -> bool:
        """Whether the files now have another content. Files that are gone have not changed."""
        try:
            found = self.read(self.authorization, self.certificate_file, self.key_file)
        except OSError:
            return False
        return found != self


class ReloadedCredentials:
    """Credentials of a kubeconfig, reloaded after a 401 and when its certificate files have changed.

    `load` runs in a thread, because it blocks and may run a program. Requests that get a 401 meanwhile share its result.
    It continues when all waiting requests have timed out, so that a slow plugin serves the next request. `close`
    cancels it; requests of other clients that wait for it then return their 401.
    `use_certificate` makes new connections use a new certificate. It runs on the event loop.
    If either raises ConfigError, the 401 is returned to the caller.
    """

    def __init__(
        self,
        user: KubeconfigUser,
        load: Callable[[], KubeconfigUser],
        use_certificate: Callable[[KubeconfigUser], None] = lambda _: None,
    ) -> None:
        self.version = 0
        self._user = user
        self._load = load
        self._use_certificate = use_certificate
        self._renewing: asyncio.Task[None] | None = None
        self._compare_at = float("-inf")

    def authorization(self) -> str | None:
        now = asyncio.get_running_loop().time()
        if now >= self._compare_at:
            self._compare_at = now + REREAD_SECONDS
            if self._user.certificate_changed():
                _ = self._start_renewal()
        return self._user.authorization

    async def renew(self, rejected: str | None, since: int = 0) -> bool:
        if self._is_current(rejected, since):
            # Unlike `await task`, cancelling this wait does not cancel the task.
            await asyncio.wait((self._start_renewal(),))
        return not self._is_current(rejected, since)

    def _start_renewal(self) -> asyncio.Task[None]:
        if self._renewing is None:
            self._renewing = asyncio.create_task(self._reload(), name="renewal of credentials")
            self._renewing.add_done_callback(self._on_reloaded)
        return self._renewing

    def close(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()

    async def _reload(self) -> None:
        try:
            self._replace(await run_in_daemon_thread(self._load))
        except ConfigError as error:
            _log.warning("credentials could not be renewed", error=str(error))

    def _on_reloaded(self, task: asyncio.Task[None]) -> None:
        self._renewing = None
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("credentials could not be renewed", exc_info=error)

    def _is_current(self, authorization: str | None, version: int) -> bool:
        return (self._user.authorization, self.version) == (authorization, version)

    def _replace(self, found: KubeconfigUser) -> None:
        if found.certificate_file and found.content != self._user.content:
            self._use_certificate(found)
            self.version += 1
            _log.info("client certificate reloaded", file=found.certificate_file)
        self._user = found
