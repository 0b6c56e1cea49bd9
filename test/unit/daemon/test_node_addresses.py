"""E10: a pod in the host's network is probed at an address of its node, and at no other."""

import asyncio
import socket
import struct
from collections.abc import Iterator
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kruise_probe.daemon import node_addresses
from kruise_probe.daemon.node_addresses import (
    InterfaceAddress,
    IPAddress,
    NodeAddresses,
    own_addresses,
    parse_netlink,
    read_addresses,
    refusal_of,
)

KEPT_SECONDS = 30.0
RETRY_SECONDS = 1.0
MAX_ADDRESSES = 4096

OWN = frozenset(map(ip_address, ("10.0.0.1", "fd00::1", "127.0.0.1", "169.254.7.7", "fe80::1")))


@pytest.mark.parametrize("ip", ["10.0.0.1", "fd00::1", "FD00:0::1"])
def test_addresses_of_the_node_are_allowed(ip: str) -> None:
    assert refusal_of(ip, OWN) == ""


@pytest.mark.parametrize(
    ("ip", "why"),
    [
        pytest.param("10.0.0.2", "not an address of this node", id="another-host"),
        pytest.param("fd00::2", "not an address of this node", id="another-host-v6"),
        pytest.param("::ffff:10.0.0.1", "not an address of this node", id="v4-in-v6"),
        pytest.param("::ffff:169.254.169.254", "not an address of this node", id="metadata-in-v6"),
        pytest.param("169.254.169.254", "a link-local address", id="metadata-service"),
        pytest.param("169.254.7.7", "a link-local address", id="link-local-though-own"),
        pytest.param("fe80::1", "a link-local address", id="link-local-v6"),
        pytest.param("127.0.0.1", "a loopback address", id="loopback"),
        pytest.param("::1", "a loopback address", id="loopback-v6"),
        pytest.param("0.0.0.0", "an unspecified address", id="unspecified"),
        pytest.param("::", "an unspecified address", id="unspecified-v6"),
        pytest.param("224.0.0.1", "a multicast address", id="multicast"),
        pytest.param("ff02::1", "a multicast address", id="multicast-v6"),
        pytest.param("metadata.example", "not an IP address", id="a-name"),
        pytest.param("010.0.0.1", "not an IP address", id="a-leading-zero"),
        pytest.param("", "not an IP address", id="empty"),
    ],
)
def test_every_other_address_is_refused_with_what_to_do(ip: str, why: str) -> None:
    refused = refusal_of(ip, OWN)
    assert why in refused
    assert "correct status.podIP of the pod, or IP in the NodePodProbe" in refused


@given(st.ip_addresses().map(str) | st.text())
def test_only_addresses_of_the_node_are_allowed(ip: str) -> None:
    if not refusal_of(ip, OWN):
        assert ip_address(ip) in OWN


class Interfaces:
    """What the kernel says, and how often it is read."""

    def __init__(self, *own: str) -> None:
        self.own = own
        self.reads = 0
        self.error: OSError | None = None

    def __call__(self) -> frozenset[IPAddress]:
        self.reads += 1
        if self.error:
            raise self.error
        return frozenset(map(ip_address, self.own))


async def test_old_addresses_are_read_again() -> None:
    interfaces = Interfaces("10.0.0.1")
    addresses = NodeAddresses(interfaces)
    for _ in range(100):
        assert addresses.refusal("10.0.0.1") == ""
    assert interfaces.reads == 1
    interfaces.own = ()
    await asyncio.sleep(KEPT_SECONDS)
    assert "not an address of this node" in addresses.refusal("10.0.0.1")


@pytest.mark.parametrize("ip", [*map(str, sorted(OWN, key=str)), "FD00:0::1", "10.0.0.2", ""])
async def test_a_known_address_is_judged_as_a_new_one(ip: str) -> None:
    addresses = NodeAddresses(Interfaces(*map(str, OWN)))
    assert [addresses.refusal(ip) for _ in range(2)] == [refusal_of(ip, OWN)] * 2


async def test_an_unknown_address_is_looked_for_once_a_second() -> None:
    interfaces = Interfaces("10.0.0.1")
    addresses = NodeAddresses(interfaces)
    for _ in range(100):
        assert addresses.refusal("10.0.0.2")
    assert interfaces.reads == 1
    interfaces.own = ("10.0.0.1", "10.0.0.2")
    await asyncio.sleep(RETRY_SECONDS)
    assert addresses.refusal("10.0.0.2") == ""
    assert interfaces.reads == 2


async def test_nothing_is_dialled_while_the_addresses_cannot_be_read() -> None:
    interfaces = Interfaces("10.0.0.1")
    addresses = NodeAddresses(interfaces)
    interfaces.error = PermissionError(1, "Operation not permitted")
    refused = addresses.refusal("10.0.0.1")
    assert "Operation not permitted" in refused
    assert "allow the daemon netlink sockets" in refused
    interfaces.error = None
    await asyncio.sleep(RETRY_SECONDS)
    assert addresses.refusal("10.0.0.1") == ""


async def test_known_addresses_are_not_dialled_once_they_cannot_be_read_again() -> None:
    interfaces = Interfaces("10.0.0.1")
    addresses = NodeAddresses(interfaces)
    assert addresses.refusal("10.0.0.1") == ""
    interfaces.error = PermissionError(1, "Operation not permitted")
    await asyncio.sleep(KEPT_SECONDS)
    assert "cannot be read" in addresses.refusal("10.0.0.1")


@pytest.mark.parametrize("name", ["kube-ipvs0", "kube-dummy-if"])
def test_addresses_of_services_are_not_the_nodes(name: str) -> None:
    found = [
        InterfaceAddress(2, ip_address("10.0.0.1")),
        InterfaceAddress(3, ip_address("10.96.0.1")),
        InterfaceAddress(4, ip_address("10.0.0.2")),
    ]
    names = {2: "eth0", 3: name}
    assert own_addresses(found, names) == {ip_address("10.0.0.1"), ip_address("10.0.0.2")}


def test_the_addresses_of_a_node_are_limited() -> None:
    found = (InterfaceAddress(2, ip_address(number)) for number in range(2 * MAX_ADDRESSES))
    assert len(own_addresses(found, {2: "eth0"})) == MAX_ADDRESSES


def test_the_kernel_reports_the_loopback_address_of_this_machine() -> None:
    assert ip_address("127.0.0.1") in read_addresses()


# The kernel's messages.


def message(kind: int, body: bytes) -> bytes:
    text = struct.pack("=IHHII", 16 + len(body), kind, 0, 1, 0) + body
    return text + bytes(-len(text) % 4)


def attributes(**values: str) -> Iterator[bytes]:
    for number, ip in zip((1, 2), (values.get("address"), values.get("local")), strict=True):
        if ip:
            packed = ip_address(ip).packed
            yield struct.pack("=HH", 4 + len(packed), number) + packed


def new_address(index: int, **values: str) -> bytes:
    head = struct.pack("=BBBBI", socket.AF_INET, 24, 0, 0, index)
    return message(20, head + b"".join(attributes(**values)))


DONE = message(3, bytes(4))


def test_the_local_address_of_a_link_is_read_and_not_the_peers() -> None:
    data = new_address(2, address="10.0.0.9", local="10.0.0.1") + new_address(3, address="fd00::1")
    found = [
        InterfaceAddress(2, ip_address("10.0.0.1")),
        InterfaceAddress(3, ip_address("fd00::1")),
    ]
    assert parse_netlink(data) == (found, False)
    assert parse_netlink(data + DONE) == (found, True)


def test_addresses_of_a_family_are_requested_and_read_to_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, kernel = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    monkeypatch.setattr(socket, "socket", lambda *_: ours)
    with ours, kernel:
        kernel.send(new_address(2, address="fd00::1"))
        kernel.send(new_address(3, address="fd00::2") + DONE)
        found = [str(each.address) for each in node_addresses._dump(socket.AF_INET6)]
        request = kernel.recv(1 << 16)

    assert found == ["fd00::1", "fd00::2"]
    length, kind, flags, _, port = struct.unpack_from("=IHHII", request)
    assert (length, kind, flags, port) == (len(request), 22, 0x301, 0)
    assert request[16:] == bytes([socket.AF_INET6, *bytes(7)])
    assert ours.gettimeout() == 1.0, "nothing else runs meanwhile"


def test_an_entry_without_an_address_is_skipped() -> None:
    data = new_address(2) + new_address(3, address="fd00::1")
    assert parse_netlink(data) == ([InterfaceAddress(3, ip_address("fd00::1"))], False)


def test_messages_without_a_body_are_read() -> None:
    noop, done = message(1, b""), message(3, b"")
    found = [InterfaceAddress(3, ip_address("fd00::1"))]
    assert parse_netlink(noop + new_address(3, address="fd00::1")) == (found, False)
    assert parse_netlink(done) == ([], True)


def test_an_attribute_without_a_value_hides_no_address() -> None:
    head = struct.pack("=BBBBI", socket.AF_INET, 24, 0, 0, 2)
    body = struct.pack("=HH", 4, 9) + b"".join(attributes(address="10.0.0.1"))
    found = [InterfaceAddress(2, ip_address("10.0.0.1"))]
    assert parse_netlink(message(20, head + body)) == (found, False)


def test_an_error_of_the_kernel_is_raised() -> None:
    with pytest.raises(OSError, match="netlink error 1"):
        parse_netlink(message(2, struct.pack("=i", -1)))


@given(st.binary(max_size=200))
def test_malformed_netlink_messages_raise(data: bytes) -> None:
    try:
        found, _ = parse_netlink(data)
    except OSError:
        return
    assert all(isinstance(each, InterfaceAddress) for each in found)
