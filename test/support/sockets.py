"""Sockets of this machine in special states."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path


@contextmanager
def full_backlog() -> Iterator[int]:
    """A port with a full backlog: a connection to it neither succeeds nor fails."""
    with ExitStack() as stack:
        listening = stack.enter_context(closing(socket.socket()))
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(closing(socket.socket()))
            waiting.setblocking(False)
            _ = waiting.connect_ex(listening.getsockname())
        yield listening.getsockname()[1]


@contextmanager
def closed_port() -> Iterator[int]:
    """A port that refuses connections: bound, so that no other process can listen there."""
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def time_waits(port: int) -> int:
    """How many connections from or to `port` are in TIME_WAIT."""
    wanted = f":{port:04X}"
    connections = 0
    table = Path("/proc/net/tcp").read_text()
    for row in table.splitlines()[1:]:
        _, local, remote, state, *_ = row.split()
        if state == "06" and wanted in (local[-5:], remote[-5:]):
            connections += 1
    return connections
