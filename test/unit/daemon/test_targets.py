"""E10: a pod in the host's network is probed at an address of its node, and at no other."""

import asyncio
import socket
from ipaddress import ip_address
from types import SimpleNamespace

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import cases

from kruise_probe.daemon.desired import (
    IPAddress,
    NodeAddresses,
    read_addresses,
    refusal_of,
)

KEPT_SECONDS = 30.0
RETRY_SECONDS = 1.0

OWN = frozenset(map(ip_address, ("10.0.0.1", "fd00::1", "127.0.0.1", "169.254.7.7", "fe80::1")))


@pytest.mark.parametrize("ip", ["10.0.0.1", "fd00::1", "FD00:0::1"])
def test_addresses_of_the_node_are_allowed(ip: str) -> None:
    assert refusal_of(ip, OWN) == ""


REFUSED = {
    "another-host": ("10.0.0.2", "not an address of this node"),
    "another-host-v6": ("fd00::2", "not an address of this node"),
    "v4-in-v6": ("::ffff:10.0.0.1", "not an address of this node"),
    "metadata-in-v6": ("::ffff:169.254.169.254", "not an address of this node"),
    "metadata-service": ("169.254.169.254", "a link-local address"),
    "link-local-though-own": ("169.254.7.7", "a link-local address"),
    "link-local-v6": ("fe80::1", "a link-local address"),
    "loopback": ("127.0.0.1", "a loopback address"),
    "loopback-v6": ("::1", "a loopback address"),
    "unspecified": ("0.0.0.0", "an unspecified address"),
    "unspecified-v6": ("::", "an unspecified address"),
    "multicast": ("224.0.0.1", "a multicast address"),
    "multicast-v6": ("ff02::1", "a multicast address"),
    "a-name": ("metadata.example", "not an IP address"),
    "a-leading-zero": ("010.0.0.1", "not an IP address"),
    "empty": ("", "not an IP address"),
}


@cases("ip why", **REFUSED)
def test_every_other_address_is_refused_with_what_to_do(ip: str, why: str) -> None:
    refused = refusal_of(ip, OWN)
    assert why in refused
    assert "correct status.podIP of the pod, or IP in the NodePodProbe" in refused


@given(st.ip_addresses().map(str) | st.text())
def test_only_addresses_of_the_node_are_allowed(ip: str) -> None:
    if not refusal_of(ip, OWN):
        assert ip_address(ip) in OWN


class Interfaces:
    """The addresses of the node as the kernel reports them, and how often they are read."""

    def __init__(self) -> None:
        self.own = ["10.0.0.1"]
        self.reads = 0
        self.error: OSError | None = None

    def __call__(self) -> frozenset[IPAddress]:
        self.reads += 1
        if self.error:
            raise self.error
        return frozenset(map(ip_address, self.own))


@pytest.fixture
async def interfaces() -> Interfaces:
    return Interfaces()


@pytest.fixture
def addresses(interfaces: Interfaces) -> NodeAddresses:
    return NodeAddresses(interfaces)


async def test_old_addresses_are_read_again(
    interfaces: Interfaces, addresses: NodeAddresses
) -> None:
    for _ in range(100):
        assert addresses.refusal("10.0.0.1") == ""
    assert interfaces.reads == 1
    interfaces.own.clear()
    await asyncio.sleep(KEPT_SECONDS)
    assert "not an address of this node" in addresses.refusal("10.0.0.1")


async def test_an_unknown_address_is_looked_for_once_a_second(
    interfaces: Interfaces, addresses: NodeAddresses
) -> None:
    for _ in range(100):
        assert addresses.refusal("10.0.0.2")
    assert interfaces.reads == 1
    interfaces.own.append("10.0.0.2")
    await asyncio.sleep(RETRY_SECONDS)
    assert addresses.refusal("10.0.0.2") == ""
    assert interfaces.reads == 2


async def test_nothing_is_dialled_while_the_addresses_cannot_be_read(
    interfaces: Interfaces, addresses: NodeAddresses
) -> None:
    assert addresses.refusal("10.0.0.1") == ""
    interfaces.error = PermissionError(1, "Operation not permitted")
    await asyncio.sleep(KEPT_SECONDS)
    refused = addresses.refusal("10.0.0.1")
    assert "cannot be read: [Errno 1] Operation not permitted" in refused
    interfaces.error = None
    await asyncio.sleep(RETRY_SECONDS)
    assert addresses.refusal("10.0.0.1") == ""


@pytest.mark.parametrize("name", ["kube-ipvs0", "kube-ipvs0:1", "kube-dummy-if"])
def test_addresses_of_services_are_not_the_nodes(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def address(ip: str, family: int = socket.AF_INET) -> SimpleNamespace:
        return SimpleNamespace(family=family, address=ip)

    found = {
        "eth0": [address("10.0.0.1"), address("fe80::1%eth0", socket.AF_INET6)],
        name: [address("10.96.0.1")],
        "wlan0": [address("00:11:22:33:44:55", socket.AF_PACKET), address("10.0.0.2")],
    }
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: found)
    assert read_addresses() == set(map(ip_address, ("10.0.0.1", "fe80::1", "10.0.0.2")))


def test_the_kernel_reports_the_loopback_address_of_this_machine() -> None:
    assert ip_address("127.0.0.1") in read_addresses()
