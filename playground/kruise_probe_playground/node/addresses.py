"""Addresses of 127/8: one block for each node, one address for each pod.

A socket bound to the first address of a block reserves the block, so two playgrounds on one machine never share one.
The kernel frees it when the process ends.

Source: CNI host-local, which uses files.
"""

import socket
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

FIRST_BLOCK = 10
LAST_BLOCK = 250
HOLDING_PORT = 10_250
OCTETS = range(1, 251)
PODS_PER_BLOCK = len(OCTETS) ** 2


class NoAddress(Exception):
    """All blocks, or all addresses of a block, are in use."""


class AddressBlock:
    """The addresses 127.<number>.x.y of one node. An address is reused only after all others."""

    def __init__(self, number: int) -> None:
        self.node_ip = f"127.{number}.0.1"
        self._free = deque(
            f"127.{number}.{third}.{fourth}" for third in OCTETS for fourth in OCTETS
        )

    def take(self) -> str:
        """Reserve a free address.

        Raises:
            NoAddress: all are in use.
        """
        if not self._free:
            raise NoAddress(f"all {PODS_PER_BLOCK} addresses of this node are in use; delete pods")
        return self._free.popleft()

    def give_back(self, ip: str) -> None:
        self._free.append(ip)


@contextmanager
def hold_block() -> Iterator[AddressBlock]:
    """Reserve a free block.

    Raises:
        NoAddress: other playgrounds use all of them.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as held:
        for number in range(FIRST_BLOCK, LAST_BLOCK + 1):
            try:
                held.bind((f"127.{number}.0.1", HOLDING_PORT))
            except OSError:
                continue
            yield AddressBlock(number)
            return
        raise NoAddress(
            "other playgrounds on this machine use all of 127.10.0.0 to 127.250.0.0; stop one"
        )
