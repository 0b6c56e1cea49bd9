"""Addresses of 127/8: one block for each node, one address for each pod.

A socket bound to the first address of a block reserves the block, so two playgrounds on one machine never share one.
The kernel frees it when the process ends.

Source: CNI host-local, which uses files.
"""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

FIRST_BLOCK, LAST_BLOCK = 10, 250
HOLDING_PORT = 10_250
PODS_PER_BLOCK = 250 * 250


class NoAddress(Exception):
    """All blocks, or all addresses of a block, are in use."""


class AddressBlock:
    """The addresses 127.<number>.x.y of one node. An address is reused only after all others."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._taken: set[int] = set()
        self._next = 0

    @property
    def node_ip(self) -> str:
        return f"127.{self._number}.0.1"

    def take(self) -> str:
        """Reserve a free address.

        Raises:
            NoAddress: all are in use.
        """
        for _ in range(PODS_PER_BLOCK):
            index = self._next
            self._next = (index + 1) % PODS_PER_BLOCK
            if index not in self._taken:
                self._taken.add(index)
                return f"127.{self._number}.{1 + index // 250}.{1 + index % 250}"
        raise NoAddress(f"all {PODS_PER_BLOCK} addresses of this node are in use; delete pods")

    def give_back(self, ip: str) -> None:
        third, fourth = (int(each) for each in ip.split(".")[2:])
        self._taken.discard((third - 1) * 250 + fourth - 1)


@contextmanager
def hold_block() -> Iterator[AddressBlock]:
    """Reserve a free block.

    Raises:
        NoAddress: other playgrounds use all of them.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as held:
        for number in range(FIRST_BLOCK, LAST_BLOCK + 1):
            block = AddressBlock(number)
            try:
                held.bind((block.node_ip, HOLDING_PORT))
            except OSError:
                continue
            yield block
            return
        raise NoAddress(
            "other playgrounds on this machine use all of 127.10.0.0 to 127.250.0.0; stop one"
        )
