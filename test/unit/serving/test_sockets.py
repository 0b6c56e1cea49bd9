"""Addresses to listen on, and the errors of those that cannot be used."""

import re
import socket

import pytest
from support.cases import cases

from kruise_probe.serving.sockets import BindAddress, BindError, listen

ADDRESSES = {
    "every-interface": (":8080", BindAddress("", 8080)),
    "last-port": (":65535", BindAddress("", 65535)),
    "any-port": ("127.0.0.1:0", BindAddress("127.0.0.1", 0)),
    "v6": ("[::1]:80", BindAddress("::1", 80)),
    "v4-in-brackets": ("[10.0.0.1]:80", BindAddress("10.0.0.1", 80)),
    "name": ("localhost:80", BindAddress("localhost", 80)),
    "off": ("0", None),
    "off-too": ("", None),
}


@cases("text address", **ADDRESSES)
def test_addresses_have_the_notation_of_go(text: str, address: BindAddress | None) -> None:
    assert BindAddress.parse(text) == address


@pytest.mark.parametrize(
    "text", ["8080", "host", ":http", ":65536", ":-1", "a:b", "::1:80", "[::1:80", "::1]:80"]
)
def test_the_error_of_a_malformed_address_has_the_notation(text: str) -> None:
    with pytest.raises(
        ValueError, match=rf"'{re.escape(text)}' is not an address .* write :8080, 127"
    ):
        BindAddress.parse(text)


def test_an_empty_host_listens_on_ipv4_and_ipv6() -> None:
    with listen(BindAddress("", 0), flag="--addr") as both:
        port = both.getsockname()[1]
        for host in ("127.0.0.1", "::1") if socket.has_dualstack_ipv6() else ("127.0.0.1",):
            socket.create_connection((host, port), timeout=1).close()


def test_a_host_listens_on_this_address_only() -> None:
    with listen(BindAddress("127.0.0.1", 0), flag="--addr") as one:
        port = one.getsockname()[1]
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", port), timeout=1)


def test_the_error_of_a_port_in_use_has_flag_and_remedy() -> None:
    with listen(BindAddress("127.0.0.1", 0), flag="--addr") as taken:
        address = BindAddress("127.0.0.1", taken.getsockname()[1])
        with pytest.raises(BindError) as raised:
            listen(address, flag="--metrics-addr")

    assert str(raised.value) == (
        f"--metrics-addr={address}: Address already in use; set another address with --metrics-addr"
    )


def test_the_error_for_the_port_of_kruises_daemon_names_it() -> None:
    address = BindAddress("127.0.0.3", 10221)
    with (
        listen(address, flag="--addr"),
        pytest.raises(BindError, match="stop OpenKruise's daemon, which uses this port too"),
    ):
        listen(address, flag="--addr")


@pytest.mark.parametrize("host", ["a..b", f"{'a' * 64}.example", "\udcff"])
def test_host_that_is_no_name_is_a_bind_error(host: str) -> None:
    with pytest.raises(BindError) as raised:
        listen(BindAddress(host, 80), flag="--metrics-addr")

    assert str(raised.value) == (
        f"--metrics-addr={host}:80: the host is not a valid name; set another address with --metrics-addr"
    )


def test_the_error_of_a_foreign_address_has_the_reason() -> None:
    with pytest.raises(BindError, match="Cannot assign requested address"):
        listen(BindAddress("192.0.2.1", 0), flag="--addr")
