"""TLS configuration for the API server: CAs and client certificates.

Source: client-go transport and rest/config.go (TLSClientConfig).
Differs: Python's strict X.509 checks are off, to accept the certificates that Go accepts.
"""

import os
import ssl
import sys
import tempfile
from pathlib import Path
from typing import IO

import structlog

from kruise_probe.client.credentials import ConfigError

_log = structlog.get_logger(__name__)


def tls_context(ca_file: Path | None, *, origin: str, verify: bool = True) -> ssl.SSLContext:
    """Return a TLS context that trusts the CAs in `ca_file`, or the system's CAs if it is None.

    Strict X.509 checks, on by default since Python 3.13, stay off. The CA certificates of many clusters
    lack the required extensions, and no other Kubernetes client requires them.

    Raises:
        ConfigError: the file is unreadable or has no certificate.
    """
    try:
        context = ssl.create_default_context(cafile=str(ca_file) if ca_file else None)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"{origin}: the CA file {ca_file} cannot be used ({error.strerror or error}); it must be a readable PEM file"
        ) from error
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def use_client_certificate(context: ssl.SSLContext, pem: bytes, *, named: str, origin: str) -> None:
    """Set the client certificate of new connections of `context`; `pem` also has the key.

    OpenSSL reads only files. This one has no name, so that a signal leaves no key behind.

    Raises:
        ConfigError: a file is unreadable or not PEM, or the key does not match the certificate.
    """
    try:
        with _unnamed_file() as file:
            file.write(pem)
            file.flush()
            context.load_cert_chain(f"/dev/fd/{file.fileno()}")
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"{origin}: the client certificate {named} cannot be used "
            f"({error.strerror or error}); both must be readable PEM files, and the key must match"
        ) from error


def _unnamed_file() -> IO[bytes]:
    # A container's root file system may be read-only.
    on_linux = sys.platform == "linux"
    return open(os.memfd_create("pem"), "wb") if on_linux else tempfile.TemporaryFile()


class CAFile:
    """A CA file that another process may replace, and the TLS context that trusts it.

    The file is read again when a server's certificate is not trusted. Old CAs stay trusted until the end of the
    process; a CA rotation keeps the old CA valid for longer than that anyway.

    Attributes:
        version: increases with each new file content that is trusted.

    Source: client-go transport/ca_rotation.go.
    Differs: read after a failure instead of every five minutes; old CAs stay trusted.
    """

    def __init__(self, path: Path, context: ssl.SSLContext) -> None:
        self.version = 0
        self._path = path
        self._context = context
        self._content = _content(path)

    def reload(self, *, since: int) -> bool:
        """Read the file again. Return True if its version is newer than `since`."""
        content = _content(self._path)
        if content and content != self._content:
            self._content = content
            try:
                self._context.load_verify_locations(cadata=content)
            except ssl.SSLError as error:
                _log.warning("new CA file is invalid", file=str(self._path), error=str(error))
            else:
                self.version += 1
                _log.info("CA file reloaded", file=str(self._path))
        return self.version > since


def _content(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="ignore")  # comments may have any characters
    except OSError:
        return ""
