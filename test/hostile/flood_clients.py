"""Clients that flood a port of this machine, in a process of their own: `python flood_clients.py ATTACK PORT …`.

Each attack is bounded in time and connections. Written with the standard library alone, so that its process starts at
once and shares no loop with the test.
"""

import argparse
import resource
import selectors
import socket
import ssl
import sys
import threading
import time

RENEWALS_A_SECOND = 500
MAX_BURST = 50.0
PAUSE = threading.Event()


class Crowd:
    """A number of connections, renewed when they are closed. Each sends `once`, then repeats `forever`."""

    def __init__(self, arguments: argparse.Namespace, *, once: bytes, forever: bytes) -> None:
        self._arguments = arguments
        self._once = once
        self._forever = forever
        self._selector = selectors.DefaultSelector()
        self._unsent: dict[socket.socket, bytes] = {}

    def run(self) -> None:
        deadline = time.monotonic() + self._arguments.seconds
        allowed = float(self._arguments.connections)
        last = time.monotonic()
        while (now := time.monotonic()) < deadline:
            # No burst makes up for a moment in which this process did not run.
            allowed += min(now - last, 0.1) * RENEWALS_A_SECOND
            last = now
            while len(self._unsent) < self._arguments.connections and allowed >= 1:
                allowed -= 1
                self._open()
            allowed = min(allowed, MAX_BURST)
            for key, events in self._selector.select(0.05):
                assert isinstance(key.fileobj, socket.socket)
                self._use(key.fileobj, events)
            PAUSE.wait(0.005)

    def _open(self) -> None:
        try:
            connection = connect(self._arguments)
        except OSError:
            return
        connection.setblocking(False)
        self._unsent[connection] = self._once
        self._selector.register(connection, selectors.EVENT_READ | selectors.EVENT_WRITE)

    def _use(self, connection: socket.socket, events: int) -> None:
        try:
            if events & selectors.EVENT_WRITE:
                self._send(connection)
            # A client that sends without end reads no answer; a reset still raises an error.
            elif not self._forever and not connection.recv(4096):
                self._drop(connection)
        except BlockingIOError:
            pass
        except OSError:
            self._drop(connection)

    def _send(self, connection: socket.socket) -> None:
        unsent = self._unsent[connection] or self._forever
        if unsent:
            sent = connection.send(unsent)
            self._unsent[connection] = unsent[sent:]
        if self._forever:
            self._selector.modify(connection, selectors.EVENT_WRITE)
        elif not self._unsent[connection]:
            self._selector.modify(connection, selectors.EVENT_READ)

    def _drop(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        del self._unsent[connection]
        connection.close()


def connect(arguments: argparse.Namespace) -> socket.socket:
    return socket.create_connection(("127.0.0.1", arguments.port), timeout=10)


def one_byte(arguments: argparse.Namespace) -> None:
    """Connections that send one byte each."""
    Crowd(arguments, once=b"G", forever=b"").run()


def silent(arguments: argparse.Namespace) -> None:
    """Connections that send nothing."""
    Crowd(arguments, once=b"", forever=b"").run()


def pipelined(arguments: argparse.Namespace) -> None:
    """Connections that send request after request and read no answer."""
    request = f"GET {arguments.path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    Crowd(arguments, once=b"", forever=request * 200).run()


def unfinished(arguments: argparse.Namespace) -> None:
    """POSTs over TLS that lack the last byte of their body."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    head = f"POST {arguments.path} HTTP/1.1\r\nHost: x\r\nContent-Length: {arguments.size}\r\n\r\n"
    request = head.encode() + b" " * (arguments.size - 1)
    held: list[ssl.SSLSocket] = []
    deadline = time.monotonic() + arguments.seconds
    for _ in range(arguments.connections):
        try:
            connection = context.wrap_socket(connect(arguments))
            held.append(connection)
            connection.sendall(request)
        except OSError:
            pass  # closed by the server: what the test wants
    PAUSE.wait(max(deadline - time.monotonic(), 0))


ATTACKS = {
    "one-byte": one_byte,
    "silent": silent,
    "pipelined": pipelined,
    "unfinished": unfinished,
}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("attack", choices=ATTACKS)
    parser.add_argument("port", type=int)
    parser.add_argument("--connections", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--path", default="/")
    parser.add_argument("--size", type=int, default=0)
    arguments = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    ATTACKS[arguments.attack](arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
