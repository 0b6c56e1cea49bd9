"""Address and credentials of the API server, loaded once at start.

In a pod, these come from the service account. That needs no kubeconfig and does not import the
`kubernetes` package, which uses 40 MB. Elsewhere that package reads a kubeconfig (see `kubeconfig`).

Source: client-go rest.InClusterConfig and tools/clientcmd.
Differs: $KUBECONFIG takes precedence over the service account, because it is set on purpose.
"""

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kruise_probe.client.credentials import (
    ConfigError,
    Credentials,
    StaticCredentials,
    TokenFile,
)
from kruise_probe.client.proxies import proxy_from_environment
from kruise_probe.client.tls import AuthorityFile, tls_context

__all__ = ["ClusterConfig", "ConfigError", "load_config"]

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, kw_only=True)
class ClusterConfig:
    """Configuration of `RestClient` for one cluster.

    Attributes:
        server: URL without a trailing slash; may have a path, the prefix of every request.
        tls: None for a plain `http` server.
        authority: the CA file that `tls` trusts, if it may be replaced at run time.
        server_name: name expected in the server's certificate, if it is not the host.
        proxy: URL of an HTTP proxy, or None.
        namespace: default namespace of the user.
        source: origin of this configuration, for messages.
    """

    server: str
    tls: ssl.SSLContext | None
    credentials: Credentials
    authority: AuthorityFile | None = None
    server_name: str | None = None
    proxy: str | None = None
    namespace: str = "default"
    source: str = ""

    @classmethod
    def plain(cls, server: str) -> "ClusterConfig":
        """Return the configuration of a server without authentication, for the playground and tests."""
        return cls(server=server.rstrip("/"), tls=None, credentials=StaticCredentials())


def load_config(
    kubeconfig: str | None = None, environ: Mapping[str, str] | None = None
) -> ClusterConfig:
    """Load the configuration: `kubeconfig` > $KUBECONFIG > the pod's service account > ~/.kube/config.

    This blocks: it reads files and may run an exec plugin, which may hang. On an event loop that handles
    signals, call it in a thread.

    Raises:
        ConfigError: one line that says what is wrong, where, and what to do.
    """
    environ = os.environ if environ is None else environ
    if kubeconfig:
        return _from_kubeconfig(kubeconfig, environ, "--kubeconfig")
    if environ.get("KUBECONFIG"):
        return _from_kubeconfig(environ["KUBECONFIG"], environ, "$KUBECONFIG")
    if environ.get("KUBERNETES_SERVICE_HOST") and (SERVICE_ACCOUNT / "token").exists():
        return _in_cluster(environ)
    default = Path(environ.get("HOME") or "~").expanduser() / ".kube" / "config"
    if default.exists():
        return _from_kubeconfig(str(default), environ, "the default kubeconfig")
    raise ConfigError(
        f"no API server to talk to: --kubeconfig and $KUBECONFIG are not set, {default} does not exist, and this "
        f"is no pod with a service account ({_why_not_in_cluster(environ)}); name a kubeconfig with --kubeconfig"
    )


def _why_not_in_cluster(environ: Mapping[str, str]) -> str:
    if not environ.get("KUBERNETES_SERVICE_HOST"):
        return "$KUBERNETES_SERVICE_HOST is not set"
    return f"{SERVICE_ACCOUNT}/token does not exist; is automountServiceAccountToken false?"


def _from_kubeconfig(paths: str, environ: Mapping[str, str], origin: str) -> ClusterConfig:
    from kruise_probe.client import (
        kubeconfig,
    )  # imported here, because it uses 40 MB that a pod need not spend

    found = kubeconfig.read(paths, origin)
    return ClusterConfig(
        server=found.server,
        tls=found.tls,
        credentials=found.credentials,
        authority=found.authority,
        server_name=found.server_name,
        proxy=found.proxy or proxy_from_environment(found.server, environ),
        namespace=found.namespace,
        source=f"{origin} {paths}",
    )


def _in_cluster(environ: Mapping[str, str]) -> ClusterConfig:
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT")
    if not port:
        raise ConfigError(
            "in a pod: $KUBERNETES_SERVICE_HOST is set but $KUBERNETES_SERVICE_PORT is not; set both, "
            "or name a kubeconfig with --kubeconfig"
        )
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    token = SERVICE_ACCOUNT / "token"
    try:
        if not token.read_text(encoding="ascii").strip():
            raise ConfigError(
                f"in a pod: {token} is empty; is the service account token projected?"
            )
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"in a pod: {token} cannot be read ({_reason(error)}); mount the service account token readable for "
            "this user (fsGroup or runAsUser)"
        ) from error
    authority = SERVICE_ACCOUNT / "ca.crt"
    tls = tls_context(authority, origin="in a pod")
    return ClusterConfig(
        server=server,
        tls=tls,
        credentials=TokenFile(token),
        authority=AuthorityFile(authority, tls),
        proxy=proxy_from_environment(server, environ),
        namespace=_own_namespace(),
        source="the pod's service account",
    )


def _own_namespace() -> str:
    try:
        return (SERVICE_ACCOUNT / "namespace").read_text(encoding="utf-8").strip() or "default"
    except OSError:
        return "default"


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
