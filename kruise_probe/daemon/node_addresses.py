"""Restricts probes of pods in the host's network to addresses of this node.

The runtime reports no address for such a pod, so the address in the NodePodProbe is checked here.
"""

import asyncio
import math
from collections.abc import Callable, Container
from ipaddress import ip_address
from typing import Final

from kruise_probe.daemon.interfaces import IPAddress, read_addresses

KEPT_SECONDS: Final = 30.0
"""How long the addresses are cached. Not for ever: a virtual address may move to another node."""

RETRY_SECONDS: Final = 1.0
"""Least time between two reads for an address that is not found."""

_NEVER: Final = (
    ("is_unspecified", "an unspecified"),
    ("is_loopback", "a loopback"),
    ("is_link_local", "a link-local"),
    ("is_multicast", "a multicast"),
)
_RULE: Final = (
    "a pod in the host's network is probed at an address of its own node only; "
    "correct status.podIP of the pod, or IP in the NodePodProbe"
)


def refusal_of(ip: str, own: Container[IPAddress]) -> str:
    """Why `ip` must not be dialled, and what to do; empty when it may."""
    try:
        address = ip_address(ip)
    except ValueError:
        return f"{ip!r} is not an IP address; {_RULE}"
    for attribute, kind in _NEVER:
        if getattr(address, attribute):
            return f"{ip} is {kind} address; {_RULE}"
    return "" if address in own else f"{ip} is not an address of this node; {_RULE}"


class NodeAddresses:
    """The node's addresses, read again when the cache is old or lacks an address."""

    def __init__(self, read: Callable[[], frozenset[IPAddress]] = read_addresses) -> None:
        self._read = read
        self._own: frozenset[IPAddress] = frozenset()
        self._problem = ""
        self._read_at = -math.inf

    def refusal(self, ip: str) -> str:
        """Why `ip` must not be dialled, and what to do; empty when it may."""
        refused = refusal_of(ip, self._own)
        age = asyncio.get_running_loop().time() - self._read_at
        if age >= (RETRY_SECONDS if refused else KEPT_SECONDS):
            self._reload()
            refused = refusal_of(ip, self._own)
        if refused and self._problem:
            return f"{ip} is not dialled: {self._problem}"
        return refused

    def _reload(self) -> None:
        self._read_at = asyncio.get_running_loop().time()
        try:
            self._own, self._problem = self._read(), ""
        except OSError as error:
            self._own = frozenset()
            self._problem = f"the addresses of this node cannot be read ({error}); allow the daemon netlink sockets"
