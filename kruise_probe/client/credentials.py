"""Credentials for the API server: the Authorization header, the client certificate and the trusted CAs.

Other processes replace their files. One mechanism follows them: a request compares the files if the last comparison was
a second ago, and at once after a 401 or a failed TLS handshake. What comes from a kubeconfig (exec plugins) is then
loaded again, too. A file may be incomplete for a while; until it is valid again, its last valid content is used.

Source: client-go transport/token_source.go, cert_rotation.go and ca_rotation.go, plugin/pkg/client/auth/exec.
Differs: the request that failed is retried at once; in client-go, the next request uses the new credentials. Files are
compared each second, not each minute. Old CAs stay trusted until the end of the process; a rotation keeps the old CA
valid for longer than that anyway.
"""

import asyncio
import re
import ssl
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from kruise_probe.api.errors import FatalError
from kruise_probe.api.times import loop_time
from kruise_probe.blocking import start_blocking
from kruise_probe.wire.tls import load_certificate

_log = structlog.get_logger(__name__)

COMPARE_SECONDS: Final = 1.0
"""How often the files are compared; they are small, and usually in memory."""

TOKEN_INTERVAL_SECONDS: Final = 0.5
"""How often a token file that is not valid is read while requests wait for it."""
TOKEN_WAIT_SECONDS: Final = 25.0
"""Longest wait of one request for a valid token file."""

_TOKEN: Final = re.compile(r"\s*([!-~]+)\s*")


class ConfigError(FatalError):
    """The client configuration is invalid. The message is one line: what is wrong, where, and what to do."""


class AuthInfo(NamedTuple):
    """The credentials of a user.

    Attributes:
        authorization: value of the Authorization header, if any.
        certificate: PEM of the client certificate and its key, or empty.
    """

    authorization: str | None = None
    certificate: bytes = b""


NO_AUTH_INFO: Final = AuthInfo()


class Credentials:
    """The current credentials, for all clients and event loops of the process.

    Args:
        user: the credentials at the start.
        tls: context of the client certificate, if there is TLS.
        load: reads the user again. It runs in a thread, because it blocks and may run a program. Requests that fail
            meanwhile share its result. It continues when all waiting requests have timed out, so that a slow plugin
            serves the next request. If it raises ConfigError, the failure is returned to the caller.

    Attributes:
        version: increases with each new certificate or CA file. Connections with an older version are not reused.
    """

    def __init__(
        self,
        user: AuthInfo = NO_AUTH_INFO,
        tls: ssl.SSLContext | None = None,
        load: Callable[[], AuthInfo] | None = None,
    ) -> None:
        self.version = 0
        self._user = user
        self._tls = tls
        self._load = load
        self._files: list[_ReplacedFile] = []
        self._token_file: _ReplacedFile | None = None
        self._compare_at = float("-inf")
        self._renewing: Future[None] | None = None
        self._starting = threading.Lock()
        self._awaits_token = False
        if user.certificate and tls is not None:
            _use_certificate(tls, user.certificate)

    def follow_token(self, path: Path) -> None:
        """Use the token in a file, and each new one.

        Raises:
            ConfigError: the file cannot be read, or has no token now.
        """

        def use(content: bytes) -> None:
            token = _token_in(content)
            self._user = self._user._replace(authorization=f"Bearer {token}")

        try:
            content = path.read_bytes()
            use(content)
        except OSError as error:
            raise ConfigError(f"{path} cannot be read ({error.strerror})") from error
        except UnicodeDecodeError as error:
            raise ConfigError(f"{path} cannot be read ({error})") from error
        except ConfigError as error:
            raise ConfigError(f"{path} {error}") from error
        self._token_file = _ReplacedFile((path,), use, content)
        self._files.append(self._token_file)

    def follow_certificate(self, *paths: Path) -> None:
        """Use new contents of the files of the client certificate and its key."""

        def use(content: bytes) -> None:
            user = self._user._replace(certificate=content)
            self._use(user)

        files = _ReplacedFile(paths, use, self._user.certificate)
        self._files.append(files)

    def follow_ca(self, path: Path, tls: ssl.SSLContext) -> None:
        """Trust new contents of a CA file."""

        def use(content: bytes) -> None:
            certificates = content.decode("ascii", "ignore")  # comments may have any characters
            tls.load_verify_locations(cadata=certificates)
            self.version += 1
            _log.info("CA file reloaded", file=str(path))

        content = _content((path,))
        file = _ReplacedFile((path,), use, content)
        self._files.append(file)

    def authorization(self) -> str | None:
        """Return the current header value, or None with a client certificate or without credentials."""
        if loop_time() >= self._compare_at:
            self.reload_files()
        return self._user.authorization

    async def renew(self, rejected: str | None, since: int) -> bool:
        """Reload everything after the server rejected the header `rejected`, or TLS failed, at version `since`.

        Return True if a retry would use other credentials or CAs.
        """
        self.reload_files()
        file = self._token_file
        if file is not None and not file.is_valid:
            await self._await_token(file)
        renewing = self._start_renewal(rejected, since)
        if renewing is not None:
            waiting = asyncio.wrap_future(renewing)
            await asyncio.wait({waiting})
            if self._renewing is renewing:
                self._renewing = None
        return not self._is_current(rejected, since)

    async def _await_token(self, file: "_ReplacedFile") -> None:
        """Wait until a new token may be used: the server refused the last one, and the file has none."""
        if not self._awaits_token:
            self._awaits_token = True
            _log.warning(
                "the API server refuses the last token; requests wait for a valid token file",
                file=str(file),
            )
        give_up_at = loop_time() + TOKEN_WAIT_SECONDS
        while not file.is_valid:
            if loop_time() >= give_up_at:
                return
            await asyncio.sleep(TOKEN_INTERVAL_SECONDS)
            self.reload_files()
        self._awaits_token = False

    def _start_renewal(
        self,
        rejected: str | None,
        since: int,
    ) -> Future[None] | None:
        """The renewal to wait for, which may be in flight; None if there is none, or if it has ended."""
        with self._starting:
            if self._load is None or not self._is_current(rejected, since):
                return None
            if self._renewing is None:
                reload = partial(self._reload, self._load)
                self._renewing = start_blocking(reload)
            return self._renewing

    def _is_current(self, authorization: str | None, version: int) -> bool:
        return self._user.authorization == authorization and self.version == version

    def reload_files(self) -> None:
        """Compare the files now, and use what has changed."""
        self._compare_at = loop_time() + COMPARE_SECONDS
        for file in self._files:
            file.reload()

    def _reload(self, load: Callable[[], AuthInfo]) -> None:
        try:
            self._use(load())
        except ConfigError as error:
            _log.warning("credentials could not be renewed", error=str(error))
        except Exception:  # noqa: BLE001 - the request that waits reports its own failure
            _log.exception("credentials could not be renewed")

    def _use(self, user: AuthInfo) -> None:
        certificate = user.certificate
        is_new = bool(certificate) and certificate != self._user.certificate
        if is_new and self._tls is not None:
            # Tried in another context first: an invalid certificate must not replace a valid one.
            trial = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            _use_certificate(trial, certificate)
            _use_certificate(self._tls, certificate)
            self.version += 1
            _log.info("client certificate reloaded")
        self._user = user


class _ReplacedFile:
    """Files that another process replaces together. `use` gets their new content, and raises if it is not valid.

    `is_valid`: False while the files are gone, or their content is not valid.
    """

    def __init__(
        self,
        paths: tuple[Path, ...],
        use: Callable[[bytes], None],
        content: bytes = b"",
    ) -> None:
        self.is_valid = True
        self._paths = paths
        self._use = use
        self._content = content

    def __str__(self) -> str:
        return str(self._paths[0])

    def reload(self) -> None:
        content = _content(self._paths)
        if not content:
            self.is_valid = False
            self._content = b""
        elif content != self._content:
            self._content = content
            self._try(content)

    def _try(self, content: bytes) -> None:
        try:
            self._use(content)
            self.is_valid = True
        except (ssl.SSLError, ConfigError, UnicodeDecodeError) as error:
            self.is_valid = False
            _log.warning("new file is invalid", file=str(self), error=str(error))


def _content(paths: tuple[Path, ...]) -> bytes:
    try:
        return b"\n".join(path.read_bytes() for path in paths)
    except OSError:
        return b""


def _token_in(content: bytes) -> str:
    """The token in the content of a file.

    Raises:
        ConfigError: it is empty, or not one line of printable characters.
        UnicodeDecodeError: it is not ASCII.
    """
    text = content.decode("ascii")
    if not text.strip():
        raise ConfigError("is empty")
    found = _TOKEN.fullmatch(text)
    if found is None:
        raise ConfigError("is not one line of printable characters without blanks")
    return found[1]


def _use_certificate(context: ssl.SSLContext, pem: bytes) -> None:
    """Set the client certificate of new connections of `context`.

    Raises:
        ConfigError: not PEM, or the key does not match the certificate.
    """
    try:
        load_certificate(context, pem)
    except OSError as error:
        reason = error.strerror or error
        raise ConfigError(
            f"the client certificate cannot be used ({reason}); certificate and key must be PEM, and "
            "the key must match"
        ) from error


def tls_context(ca_file: Path | None, *, origin: str, verify: bool = True) -> ssl.SSLContext:
    """Return a TLS context that trusts the CAs in `ca_file`, or the system's CAs if it is None.

    Strict X.509 checks, on by default since Python 3.13, stay off. The CA certificates of many clusters
    lack the required extensions, and no other Kubernetes client requires them.

    Raises:
        ConfigError: the file is unreadable or has no certificate.
    """
    name: str | None = None
    if ca_file is not None:
        name = str(ca_file)
    try:
        context = ssl.create_default_context(cafile=name)
    except (OSError, ssl.SSLError) as error:
        reason = error.strerror or error
        raise ConfigError(
            f"{origin}: the CA file {ca_file} cannot be used ({reason}); it must be a readable PEM file"
        ) from error
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
