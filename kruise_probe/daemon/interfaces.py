"""The addresses of this node's network interfaces, read from the kernel.

A successful bind does not prove that an address is local: with `net.ipv4.ip_nonlocal_bind`, which load balancers
set, every bind succeeds. And not every interface address is the node's. kube-proxy in IPVS mode assigns every Service's
cluster IP to an interface; a connection to it reaches another pod.

Source: rtnetlink(7), netlink(7); the output of `ip address`.
"""

import socket
import struct
from collections.abc import Iterable, Iterator, Mapping
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
            found, done = parse(netlink.recv(_RECEIVE_BYTES))
            yield from found


def parse(data: bytes) -> tuple[list[InterfaceAddress], bool]:
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
