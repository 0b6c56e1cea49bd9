"""TLS towards the API server.

Source: client-go transport and rest/config.go (TLSClientConfig).
Differs: Python's strict X.509 checks are turned off to accept what Go accepts.
"""

import ssl
from pathlib import Path

import structlog

from kruise_probe.client.credentials import ConfigError

log = structlog.get_logger(__name__)


def tls_context(authority: Path | None, *, origin: str, verify: bool = True) -> ssl.SSLContext:
    """A TLS context that trusts `authority`, or the system's authorities without one.

    Strict X.509 checks, which Python 3.13 turned on, stay off: the authorities of many clusters lack the
    extensions that they ask for, and no other Kubernetes client insists on them.

    Raises:
        ConfigError: the file cannot be read, or holds no certificate.
    """
    try:
        context = ssl.create_default_context(cafile=str(authority) if authority else None)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"{origin}: the certificate authority {authority} cannot be used ({error.strerror or error}); it must be a "
            "readable PEM file"
        ) from error
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def use_client_certificate(
    context: ssl.SSLContext, certificate: str, key: str | None, *, origin: str
) -> None:
    """Makes connections that `context` opens from now on present `certificate`.

    Raises:
        ConfigError: unreadable, no PEM, or the key is another's.
    """
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"{origin}: the client certificate {certificate} with key {key} cannot be used "
            f"({error.strerror or error}); both must be readable PEM and belong together"
        ) from error


class AuthorityFile:
    """The file of an authority that somebody else replaces, and the context that trusts what stands in it.

    It is looked at when a server's certificate was not trusted. What was trusted before stays so until the end of the
    process: who rotates an authority leaves the old one beside the new one for longer than that anyway.

    Attributes:
        version: grows with each content of the file that is trusted.

    Source: client-go transport/ca_rotation.go.
    Differs: looked at on a failure instead of each five minutes; nothing is forgotten.
    """

    def __init__(self, path: Path, context: ssl.SSLContext) -> None:
        self.version = 0
        self._path = path
        self._context = context
        self._content = _content(path)

    def renewed(self, *, since: int) -> bool:
        """Whether more is trusted now than at that version."""
        content = _content(self._path)
        if content and content != self._content:
            self._content = content
            try:
                self._context.load_verify_locations(cadata=content)
            except ssl.SSLError as error:
                log.warning("new authority cannot be used", file=str(self._path), error=str(error))
            else:
                self.version += 1
                log.info("new authority is trusted", file=str(self._path))
        return self.version > since


def _content(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return ""
