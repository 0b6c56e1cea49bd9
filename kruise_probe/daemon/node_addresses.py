"""The addresses of this node, and which of them a probe may connect to.

A pod in the host's network has no address in its sandbox, so the address in the NodePodProbe is checked here. The
kernel's list of interfaces decides: a successful bind does not prove that an address is local. With
`net.ipv4.ip_nonlocal_bind`, which load balancers set, every bind succeeds. And not every interface address is the node's.
kube-proxy in IPVS mode assigns every Service's cluster IP to an interface; a connection to it reaches another pod.

Source: rtnetlink(7), netlink(7); the output of `ip address`.
"""

import asyncio
import math
import socket
import struct
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address
from itertools import islice
from typing import Final, NamedTuple

IPAddress = IPv4Address | IPv6Address

SERVICE_INTERFACES: Final = frozenset({"kube-ipvs0", "kube-dummy-if"})
"""Interfaces of kube-proxy and kube-router that carry addresses of Services."""

MAX_ADDRESSES: Final = 4096
"""Limit per address family."""

_RECEIVE_BYTES: Final = 1 << 16
_TIMEOUT_SECONDS: Final = 1.0
_HEADER: Final = struct.Struct("=IHHII")
_ADDRESS_HEADER: Final = struct.Struct("=BBBBI")
_ATTRIBUTE: Final = struct.Struct("=HH")
_NEW_ADDRESS, _GET_ADDRESS = 20, 22
_ERROR, _DONE = 2, 3
_REQUEST_DUMP: Final = 0x301
_IFA_ADDRESS, _IFA_LOCAL = 1, 2

KEPT_SECONDS: Final = 30.0
"""How long the addresses are cached. Not forever: a virtual address may move to another node."""

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


class InterfaceAddress(NamedTuple):
    interface: int
    address: IPAddress


def read_addresses() -> frozenset[IPAddress]:
    """The addresses of all interfaces, without those of Services.

    Raises:
        OSError: the kernel reports an error, or does not respond in time.
    """
    names = dict(socket.if_nameindex())
    return own_addresses(_dump(socket.AF_INET), names) | own_addresses(
        _dump(socket.AF_INET6), names
    )


def own_addresses(
    found: Iterable[InterfaceAddress], names: Mapping[int, str]
) -> frozenset[IPAddress]:
    """The first `MAX_ADDRESSES` addresses that are not of Services; `names` maps interface index to name."""
    own = (each.address for each in found if names.get(each.interface) not in SERVICE_INTERFACES)
    return frozenset(islice(own, MAX_ADDRESSES))


def _dump(family: int) -> Iterator[InterfaceAddress]:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as netlink:
        netlink.settimeout(_TIMEOUT_SECONDS)
        body = _ADDRESS_HEADER.pack(family, 0, 0, 0, 0)
        length = _HEADER.size + len(body)
        netlink.send(_HEADER.pack(length, _GET_ADDRESS, _REQUEST_DUMP, 1, 0) + body)
        done = False
        while not done:
            found, done = parse_netlink(netlink.recv(_RECEIVE_BYTES))
            yield from found


def parse_netlink(data: bytes) -> tuple[list[InterfaceAddress], bool]:
    """The addresses in one datagram of the kernel's response, and whether it is the last one.

    Raises:
        OSError: the datagram reports an error, or is malformed.
    """
    try:
        return _parse(data)
    except (struct.error, ValueError) as error:
        raise OSError(f"malformed netlink message: {error}") from error


def _parse(data: bytes) -> tuple[list[InterfaceAddress], bool]:
    found: list[InterfaceAddress] = []
    while len(data) >= _HEADER.size:
        length, kind, *_ = _HEADER.unpack_from(data)
        if kind == _DONE or length < _HEADER.size:
            return found, True
        message, data = data[_HEADER.size : length], data[_aligned(length) :]
        if kind == _ERROR:
            code = -struct.unpack_from("=i", message)[0]
            raise OSError(code, f"netlink error {code}")
        if kind == _NEW_ADDRESS:
            address = _address(message[_ADDRESS_HEADER.size :])
            if address:
                found.append(InterfaceAddress(_ADDRESS_HEADER.unpack_from(message)[4], address))
    return found, False


def _address(attributes: bytes) -> IPAddress | None:
    """Prefer IFA_LOCAL: on a point-to-point link, IFA_ADDRESS is the peer's address."""
    values: dict[int, bytes] = {}
    while len(attributes) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(attributes)
        if length < _ATTRIBUTE.size:
            break
        values[kind] = attributes[_ATTRIBUTE.size : length]
        attributes = attributes[_aligned(length) :]
    packed = values.get(_IFA_LOCAL) or values.get(_IFA_ADDRESS)
    return ip_address(packed) if packed else None


def _aligned(length: int) -> int:
    return (length + 3) & ~3


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
        self._allowed: frozenset[str] = frozenset()
        self._problem = ""
        self._read_at = -math.inf

    def refusal(self, ip: str) -> str:
        """Why `ip` must not be dialled, and what to do; empty when it may."""
        age = asyncio.get_running_loop().time() - self._read_at
        # Parsing it each time takes about a tenth of the CPU of a probe.
        if ip in self._allowed and age < KEPT_SECONDS:
            return ""
        refused = refusal_of(ip, self._own)
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
        texts = map(str, self._own)
        self._allowed = frozenset(text for text in texts if not refusal_of(text, self._own))
