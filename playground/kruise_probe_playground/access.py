"""The credentials of a playground: a random token, and the certificate of the API server.

The server uses TLS, because kubectl sends a token over TLS only. Token and certificate are valid for one session. The
key of the CA is discarded, so another user's program that gets the port later cannot impersonate the server.
"""

import secrets
import ssl
from datetime import timedelta
from typing import Final, NamedTuple

from kruise_probe.api.times import utc_now
from kruise_probe.client.config import ClusterConfig
from kruise_probe.client.credentials import AuthInfo, Credentials
from kruise_probe.serving.certificates import issue_certificate
from kruise_probe.serving.server_tls import server_context
from kruise_probe.wire.tls import load_certificate
from kruise_probe_playground.apiserver.server import Tls

LIFETIME: Final = timedelta(days=365)


class Access(NamedTuple):
    """The secrets of one session."""

    tls: Tls
    token: str

    def config(self, server: str) -> ClusterConfig:
        """The configuration of a client in this process."""
        return ClusterConfig(
            server=server,
            tls=ssl.create_default_context(cadata=self.tls.authority.decode()),
            credentials=Credentials(AuthInfo(f"Bearer {self.token}")),
        )


def new_tls() -> Tls:
    """Issue a certificate for a server on loopback."""
    issued = issue_certificate(
        ("localhost", "127.0.0.1"),
        now=utc_now(),
        lifetime=LIFETIME,
    )
    context = server_context()
    load_certificate(context, issued.certificate + issued.key)
    return Tls(context, issued.certificate)


def new_access() -> Access:
    return Access(new_tls(), secrets.token_urlsafe(32))
