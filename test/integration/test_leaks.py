"""The check that fails a test for what it leaves open."""

import socket

import pytest
from support.leaks import no_leaks


def cycle_with(opened: socket.socket) -> None:
    """Only a collection of garbage frees it."""
    cycle: list[object] = [opened]
    cycle.append(cycle)


def test_a_socket_left_open_fails_its_own_block() -> None:
    def leak() -> None:
        with no_leaks():
            cycle_with(socket.socket())

    with pytest.raises(AssertionError, match=r"unclosed .*socket"):
        leak()


def test_a_socket_that_was_closed_fails_nothing() -> None:
    with no_leaks(), socket.socket() as closed:
        cycle_with(closed)
