"""Refuses requests of web pages: a browser on this machine reaches loopback for any page that it shows.

Source: none; a real API server relies on credentials alone, which a page does not have.
Differs: a server made with `NO_TOKENS` accepts every program of this machine, so it must tell programs from pages.
"""

from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from kruise_probe.playground.apiserver.failures import Failure


def check_no_web_page(headers: Mapping[str, str]) -> None:
    """Refuses what a browser sends for a page, also under a name that resolves to loopback.

    Every browser sends a Host.

    Raises:
        Failure: 403.
    """
    origin, host = headers.get("Origin"), headers.get("Host")
    if origin is not None:
        raise _forbidden(f'the request carries "Origin: {origin}"')
    if host is not None and not _is_loopback(host):
        raise _forbidden(
            f'the request carries "Host: {host}", which is neither a loopback address nor localhost'
        )


def _forbidden(why: str) -> Failure:
    message = (
        f"forbidden: {why}; this playground's API server takes no requests that a web page could send:"
        " use kubectl or another program, without that header"
    )
    return Failure(403, "Forbidden", message, details={})


def _is_loopback(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ip_address(name).is_loopback
    except ValueError:
        return False
