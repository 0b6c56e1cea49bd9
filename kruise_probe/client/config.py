"""Address, credentials and proxy of the API server, loaded once at start.

In a pod, the configuration comes from the service account, without the `kubernetes` package, which uses 40 MB.
Elsewhere that package reads a kubeconfig (see `kubeconfig`).

Source: client-go rest.InClusterConfig and tools/clientcmd; golang.org/x/net/http/httpproxy.
Differs: $KUBECONFIG takes precedence over the service account, because it is set on purpose. SOCKS proxies are not
supported.
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from kruise_probe.api.meta import HostPort
from kruise_probe.client.cluster_config import (
    DEFAULT_PORTS,
    NO_OVERRIDES,
    ClusterConfig,
    ConfigOverrides,
)
from kruise_probe.client.credentials import ConfigError, Credentials, tls_context

__all__ = ["ClusterConfig", "ConfigError", "ConfigOverrides", "load_config"]

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_NEVER_BY_PROXY: Final = ("localhost", "127.0.0.0/8", "::1")


def load_config(
    kubeconfig: str | None = None,
    environ: Mapping[str, str] | None = None,
    overrides: ConfigOverrides = NO_OVERRIDES,
    *,
    kubeconfig_first: bool = False,
) -> ClusterConfig:
    """Load the configuration: `kubeconfig` > $KUBECONFIG > the pod's service account > ~/.kube/config.

    With `kubeconfig_first`, ~/.kube/config takes precedence over the service account, as in kubectl. `overrides` that
    name parts of a kubeconfig skip the service account.

    This blocks: it reads files and may run an exec plugin, which may hang. On an event loop that handles
    signals, call it in a thread.

    Raises:
        ConfigError: one line that says what is wrong, where, and what to do.
    """
    if environ is None:
        environ = os.environ
    home = environ.get("HOME") or os.path.expanduser("~")
    default = os.path.join(home, ".kube", "config")
    has_default = os.path.exists(default)
    chosen = overrides.context or overrides.cluster or overrides.user
    skip_account = chosen or (kubeconfig_first and has_default)
    address = environ.get("KUBERNETES_SERVICE_HOST") and environ.get("KUBERNETES_SERVICE_PORT")
    token = SERVICE_ACCOUNT / "token"
    in_cluster = address and token.exists()
    if kubeconfig:
        config = _from_kubeconfig(kubeconfig, environ, "--kubeconfig", overrides)
    elif environ.get("KUBECONFIG"):
        config = _from_kubeconfig(environ["KUBECONFIG"], environ, "$KUBECONFIG", overrides)
    elif in_cluster and not skip_account:
        config = _in_cluster(environ)
    elif has_default:
        config = _from_kubeconfig(default, environ, "the default kubeconfig", overrides)
    else:
        account = "$KUBERNETES_SERVICE_HOST or $KUBERNETES_SERVICE_PORT is not set"
        if address:
            account = f"{token} does not exist; is automountServiceAccountToken false?"
        raise ConfigError(
            f"no configuration of an API server: --kubeconfig and $KUBECONFIG are not set, {default} does not exist, "
            f"and there is no service account of a pod ({account}); set --kubeconfig"
        )
    return replace(config, as_user=overrides.as_user, as_groups=overrides.as_groups)


def _from_kubeconfig(
    paths: str,
    environ: Mapping[str, str],
    origin: str,
    overrides: ConfigOverrides,
) -> ClusterConfig:
    from kruise_probe.client import kubeconfig  # uses 40 MB, which a pod does not need

    config = kubeconfig.load(paths, origin, overrides)
    proxy = config.proxy or proxy_from_environment(config.server, environ)
    return replace(config, proxy=proxy)


def _in_cluster(environ: Mapping[str, str]) -> ClusterConfig:
    host = environ["KUBERNETES_SERVICE_HOST"]
    if ":" in host:
        host = f"[{host}]"
    port = environ["KUBERNETES_SERVICE_PORT"]
    server = f"https://{host}:{port}"
    ca_file = SERVICE_ACCOUNT / "ca.crt"
    tls = tls_context(ca_file, origin="in a pod")
    credentials = Credentials()
    try:
        credentials.follow_token(SERVICE_ACCOUNT / "token")
    except ConfigError as error:
        raise ConfigError(
            f"in a pod: {error}; is the service account token projected, and readable for this user (fsGroup or "
            "runAsUser)?"
        ) from error
    credentials.follow_ca(ca_file, tls)
    return ClusterConfig(
        server=server,
        tls=tls,
        credentials=credentials,
        proxy=proxy_from_environment(server, environ),
        namespace=_pod_namespace(),
        source="the pod's service account",
    )


def _pod_namespace() -> str:
    file = SERVICE_ACCOUNT / "namespace"
    try:
        text = file.read_text(encoding="utf-8")
    except OSError:
        return "default"
    return text.strip() or "default"


def proxy_from_environment(server: str, environ: Mapping[str, str]) -> str | None:
    """Return the URL of the proxy for `server`, or None, with the rules of Go programs.

    `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY` may be upper or lower case. Loopback never uses a proxy. `NO_PROXY`
    accepts names, suffixes, addresses, CIDRs, ports and `*`. The `proxy-url` of a kubeconfig takes precedence.
    """
    url = urlsplit(server)
    scheme = url.scheme.upper()
    proxy = _variable(environ, f"{scheme}_PROXY")
    if not proxy:
        return None
    host = url.hostname or ""
    port = url.port or DEFAULT_PORTS.get(url.scheme, 0)
    target = HostPort(host.lower(), port)
    excluded = _variable(environ, "NO_PROXY").split(",")
    for rule in (*_NEVER_BY_PROXY, *excluded):
        if _excludes(rule.strip().lower(), target):
            return None
    if "://" not in proxy:
        proxy = f"http://{proxy}"
    return proxy


def _variable(environ: Mapping[str, str], name: str) -> str:
    lower = name.lower()
    return environ.get(name) or environ.get(lower) or ""


def _excludes(rule: str, server: HostPort) -> bool:
    """Whether a rule of $NO_PROXY excludes a server: by network, by name or suffix, with or without its port."""
    if not rule:
        return False
    if rule == "*" or _is_in(server.host, rule):
        return True
    name = rule.removeprefix("*").removeprefix(".")
    domain = f".{name}"
    host = f".{server.host}"
    with_port = f".{server}"
    return host.endswith(domain) or with_port.endswith(domain)


def _is_in(host: str, network: str) -> bool:
    try:
        address = ip_address(host)
        return address in ip_network(network, strict=False)
    except ValueError:
        return False
