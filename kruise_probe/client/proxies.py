"""Which proxy leads to the API server: the rules of Go programs, so that one environment suits all.

`HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY` (either case) are read once, for the one server that a client
talks to. Loopback is never proxied; `NO_PROXY` takes names, `.suffixes`, addresses, CIDRs, ports and `*`.
A kubeconfig's `proxy-url` goes before the environment. Probes never use a proxy.

Source: golang.org/x/net/http/httpproxy, which client-go uses.
Differs: nothing that a server's address could show; SOCKS is not supported.
"""

from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit

_DEFAULT_PORTS = {"http": 80, "https": 443}


def proxy_from_environment(server: str, environ: Mapping[str, str]) -> str | None:
    """The proxy's URL for `server`, or None."""
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
    name, wanted_port = _split_port(rule)
    if wanted_port and wanted_port != str(port):
        return False
    if name.startswith(("*.", ".")):
        return host.endswith(name.removeprefix("*"))
    return host == name or (bool(name) and host.endswith(f".{name}"))


def _split_port(rule: str) -> tuple[str, str]:
    """`name:port`, `[v6]:port` or a bare one of them."""
    if rule.startswith("["):
        name, _, rest = rule[1:].partition("]")
        return name, rest.removeprefix(":")
    name, _, port = rule.rpartition(":")
    return (name, port) if name and ":" not in name else (rule, "")
