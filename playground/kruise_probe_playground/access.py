"""Who may use a playground: a random token for each user, and the certificate of the API server.

The server speaks TLS, because kubectl sends a token over TLS only. Both are valid for one session. The key of the
authority is dropped at once, so a program of another user that takes the port later cannot pass for the server.
"""

import secrets
import ssl
from datetime import timedelta
from typing import Final, NamedTuple

from kruise_probe.api.names import SYSTEM_NAMESPACE
from kruise_probe.api.times import utc_now
from kruise_probe.client.config import ClusterConfig
from kruise_probe.client.credentials import StaticCredentials
from kruise_probe.manifests import rbac
from kruise_probe.serving.certificates import issue_certificate
from kruise_probe.serving.tls import load_certificate, server_context
from kruise_probe_playground.apiserver.authentication import Tokens, User
from kruise_probe_playground.apiserver.server import Tls

TOKEN_BYTES: Final = 32
LIFETIME: Final = timedelta(days=365)
SERVER_NAMES: Final = ("localhost", "127.0.0.1")


def _service_account(name: str) -> User:
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{SYSTEM_NAMESPACE}")
    return User(f"system:serviceaccount:{SYSTEM_NAMESPACE}:{name}", groups)


ADMIN: Final = User("kubernetes-admin", ("system:masters",))
MANAGER: Final = _service_account(rbac.MANAGER)
DAEMON: Final = _service_account(rbac.DAEMON)
KUBELETS: Final = User("system:node:all", ("system:nodes",))
SCHEDULER: Final = User("system:kube-scheduler")
CONTROLLERS: Final = User("system:kube-controller-manager")

_USERS: Final = (ADMIN, MANAGER, DAEMON, KUBELETS, SCHEDULER, CONTROLLERS)


class Access(NamedTuple):
    """The secrets of one session; made by `new_access`."""

    tls: Tls
    tokens: Tokens

    def token(self, user: User) -> str:
        return next(token for token, named in self.tokens.items() if named == user)

    def config(self, server: str, user: User) -> ClusterConfig:
        """The configuration of a client in this process that is `user`."""
        return ClusterConfig(
            server=server,
            tls=ssl.create_default_context(cadata=self.tls.authority.decode()),
            credentials=StaticCredentials(f"Bearer {self.token(user)}"),
        )


def new_access() -> Access:
    """Make a new certificate and new tokens."""
    issued = issue_certificate(SERVER_NAMES, now=utc_now(), lifetime=LIFETIME)
    context = server_context()
    load_certificate(context, issued.certificate + issued.key)
    return Access(
        Tls(context, issued.authority),
        {secrets.token_urlsafe(TOKEN_BYTES): user for user in _USERS},
    )
