"""Addresses to listen on."""

import socket

import pytest

from kruise_probe.serving.address import Address, BindError, listen


@pytest.mark.parametrize(
    ("text", "address"),
    [
        pytest.param(":8080", Address("", 8080), id="every-interface"),
        pytest.param("127.0.0.1:0", Address("127.0.0.1", 0), id="any-port"),
        pytest.param("[::1]:80", Address("::1", 80), id="v6"),
        pytest.param("[10.0.0.1]:80", Address("10.0.0.1", 80), id="v4-in-brackets"),
        pytest.param("localhost:80", Address("localhost", 80), id="name"),
        pytest.param("0", None, id="off"),
        pytest.param("", None, id="off-too"),
    ],
)
def test_addresses_are_written_as_go_programs_write_them(
    text: str, address: Address | None
) -> None:
    assert Address.parse(text, flag="--addr") == address


@pytest.mark.parametrize("text", ["8080", "host", ":http", ":70000", ":-1", "a:b"])
def test_what_is_no_address_is_said_so_with_its_flag(text: str) -> None:
    with pytest.raises(BindError, match=rf"--addr={text}: is no address .* \[host\]:port"):
        Address.parse(text, flag="--addr")


def test_every_interface_means_both_families() -> None:
    with listen(Address("", 0), flag="--addr") as both:
        port = both.getsockname()[1]
        for host in ("127.0.0.1", "::1") if socket.has_dualstack_ipv6() else ("127.0.0.1",):
            socket.create_connection((host, port), timeout=1).close()


def test_a_named_host_is_the_only_one_listened_on() -> None:
    with listen(Address("127.0.0.1", 0), flag="--addr") as one:
        port = one.getsockname()[1]
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", port), timeout=1)


def test_a_taken_port_is_one_line_that_names_it() -> None:
    with listen(Address("127.0.0.1", 0), flag="--addr") as taken:
        address = Address("127.0.0.1", taken.getsockname()[1])
        with pytest.raises(BindError) as raised:
            listen(address, flag="--metrics-addr")

    assert str(raised.value) == (
        f"--metrics-addr={address}: is taken already; choose another address with --metrics-addr"
    )


def test_the_port_of_kruises_daemon_is_known() -> None:
    address = Address("127.0.0.3", 10221)
    with (
        listen(address, flag="--addr"),
        pytest.raises(BindError, match="OpenKruise's daemon listens there, too"),
    ):
        listen(address, flag="--addr")


def test_an_address_of_another_machine_is_said_so() -> None:
    with pytest.raises(BindError, match="is no address of this machine"):
        listen(Address("192.0.2.1", 0), flag="--addr")
