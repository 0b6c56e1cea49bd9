"""The credentials of a playground: a random token for each user, and the certificate of the API server.

The server uses TLS, because kubectl sends a token over TLS only. Tokens and certificate are valid for one session. The
key of the CA is discarded, so another user's program that gets the port later cannot impersonate the server.
"""

import secrets
import ssl
from datetime import timedelta
from typing import Final, NamedTuple

from kruise_probe.api.names import SYSTEM_NAMESPACE
from kruise_probe.api.times import utc_now
from kruise_probe.client.config import ClusterConfig
from kruise_probe.client.credentials import AuthInfo, Credentials, load_certificate
from kruise_probe.manifests import install
from kruise_probe.serving.certificates import issue_certificate
from kruise_probe.serving.sockets import server_context
from kruise_probe_playground.apiserver.authentication import Tokens, User, groups_of
from kruise_probe_playground.apiserver.server import Tls

LIFETIME: Final = timedelta(days=365)


def _service_account(name: str) -> User:
    user = f"system:serviceaccount:{SYSTEM_NAMESPACE}:{name}"
    return User(user, groups_of(user))


ADMIN: Final = User("kubernetes-admin", ("system:masters",))
MANAGER: Final = _service_account(install.MANAGER)
DAEMON: Final = _service_account(install.DAEMON)
KUBELETS: Final = User("system:node:all", ("system:nodes",))
SCHEDULER: Final = User("system:kube-scheduler")
CONTROLLERS: Final = User("system:kube-controller-manager")

_USERS: Final = (ADMIN, MANAGER, DAEMON, KUBELETS, SCHEDULER, CONTROLLERS)


class Access(NamedTuple):
    """The secrets of one session."""

    tls: Tls
    tokens: Tokens

    def token(self, user: User) -> str:
        return next(token for token, named in self.tokens.items() if named == user)

    def config(self, server: str, user: User) -> ClusterConfig:
        """The configuration of a client in this process that is `user`."""
        return ClusterConfig(
            server=server,
            tls=ssl.create_default_context(cadata=self.tls.authority.decode()),
            credentials=Credentials(AuthInfo(f"Bearer {self.token(user)}")),
        )


def new_tls() -> Tls:
    """Issue a certificate for a server on loopback."""
    issued = issue_certificate(("localhost", "127.0.0.1"), now=utc_now(), lifetime=LIFETIME)
    context = server_context()
    load_certificate(context, issued.certificate + issued.key)
    return Tls(context, issued.authority)


def new_token() -> str:
    return secrets.token_urlsafe(32)


def new_access() -> Access:
    return Access(new_tls(), {new_token(): user for user in _USERS})
