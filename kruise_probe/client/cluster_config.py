"""Where a cluster is and how a client authenticates there, as values.

Source: client-go rest/config.go (Config), tools/clientcmd/overrides.go.
"""

import ssl
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kruise_probe.client.credentials import Credentials

DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class ConfigOverrides(NamedTuple):
    """kubectl's global flags for the API server; empty if not set.

    Attributes:
        context: context of the kubeconfig to use instead of the current one.
        cluster: cluster of the kubeconfig to use instead of that of the context.
        user: user of the kubeconfig to use instead of that of the context.
        as_user: user to impersonate.
        as_groups: groups to impersonate.
    """

    context: str = ""
    cluster: str = ""
    user: str = ""
    as_user: str = ""
    as_groups: tuple[str, ...] = ()


NO_OVERRIDES: Final = ConfigOverrides()


@dataclass(frozen=True, kw_only=True)
class ClusterConfig:
    """Configuration of `RestClient` for one cluster.

    Attributes:
        server: URL without a trailing slash; may have a path, the prefix of every request.
        tls: None for a plain `http` server.
        server_name: name expected in the server's certificate, if it is not the host.
        proxy: URL of an HTTP proxy, or None.
        namespace: default namespace of the user.
        source: origin of this configuration, for messages.
        as_user: user to impersonate, or empty.
        as_groups: groups to impersonate.
    """

    server: str
    tls: ssl.SSLContext | None = None
    credentials: Credentials = field(default_factory=Credentials)
    server_name: str | None = None
    proxy: str | None = None
    namespace: str = "default"
    source: str = ""
    as_user: str = ""
    as_groups: tuple[str, ...] = ()
