"""The proxy for the API server, from the environment, with the same rules as Go programs.

`HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY` (upper or lower case) are read once, for the client's one server.
Loopback is never proxied. `NO_PROXY` accepts names, `.suffixes`, addresses, CIDRs, ports and `*`.
A kubeconfig's `proxy-url` takes precedence over the environment. Probes never use a proxy.

Source: golang.org/x/net/http/httpproxy, which client-go uses.
Differs: SOCKS is not supported.
"""

from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit

_DEFAULT_PORTS = {"http": 80, "https": 443}


def proxy_from_environment(server: str, environ: Mapping[str, str]) -> str | None:
    """Return the URL of the proxy for `server`, or None."""
    url = urlsplit(server)
    host, port = url.hostname or "", url.port or _DEFAULT_PORTS.get(url.scheme, 0)
    proxy = _variable(environ, f"{url.scheme.upper()}_PROXY")
    if not proxy or _excluded(host, port, _variable(environ, "NO_PROXY")):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _variable(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name) or environ.get(name.lower()) or ""


def _excluded(host: str, port: int, exclusions: str) -> bool:
    if host == "localhost" or _is_loopback(host):
        return True
    return any(
        _matches(each.strip().lower(), host.lower(), port)
        for each in exclusions.split(",")
        if each.strip()
    )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _matches(rule: str, host: str, port: int) -> bool:
    if rule == "*":
        return True
    try:
        return ip_address(host) in ip_network(rule, strict=False)
    except ValueError:
        pass
    name, rule_port = _split_port(rule)
    if rule_port and rule_port != str(port):
        return False
    if name.startswith(("*.", ".")):
        return host.endswith(name.removeprefix("*"))
    return host == name or (bool(name) and host.endswith(f".{name}"))


def _split_port(rule: str) -> tuple[str, str]:
    """Split `name:port` or `[v6]:port`. The port is empty if there is none."""
    if rule.startswith("["):
        name, _, rest = rule[1:].partition("]")
        return name, rest.removeprefix(":")
    name, _, port = rule.rpartition(":")
    return (name, port) if name and ":" not in name else (rule, "")
