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
    message = rf"'{re.escape(text)}' is not an address .* write :8080, 127"
    with pytest.raises(ValueError, match=message):
        BindAddress.parse(text)


def bind(host: str, port: int = 0) -> socket.socket:
    return listen(BindAddress(host, port), flag="--metrics-addr")


def port_of(bound: socket.socket) -> int:
    port: int = bound.getsockname()[1]
    return port


def error_of(host: str, port: int = 0) -> str:
    """The message of the BindError."""
    with pytest.raises(BindError) as raised:
        bind(host, port)
    return str(raised.value)


def test_an_empty_host_listens_on_ipv4_and_ipv6() -> None:
    hosts = ["127.0.0.1"]
    if socket.has_dualstack_ipv6():
        hosts.append("::1")
    with bind("") as both:
        for host in hosts:
            socket.create_connection((host, port_of(both)), timeout=1).close()


def test_a_host_listens_on_this_address_only() -> None:
    with bind("127.0.0.1") as one, pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", port_of(one)), timeout=1)


def test_the_error_of_a_port_in_use_has_flag_and_remedy() -> None:
    with bind("127.0.0.1") as taken:
        port = port_of(taken)
        error = error_of("127.0.0.1", port)

    assert error == (
        f"--metrics-addr=127.0.0.1:{port}: Address already in use; "
        "set another address with --metrics-addr"
    )


def test_the_error_for_the_port_of_kruises_daemon_names_it() -> None:
    with bind("127.0.0.3", 10221):
        error = error_of("127.0.0.3", 10221)

    assert "stop OpenKruise's daemon, which uses this port too" in error


@pytest.mark.parametrize("host", ["a..b", f"{'a' * 64}.example", "\udcff"])
def test_host_that_is_no_name_is_a_bind_error(host: str) -> None:
    assert error_of(host, 80) == (
        f"--metrics-addr={host}:80: the host is not a valid name; "
        "set another address with --metrics-addr"
    )


def test_the_error_of_a_foreign_address_has_the_reason() -> None:
    assert "Cannot assign requested address" in error_of("192.0.2.1")
