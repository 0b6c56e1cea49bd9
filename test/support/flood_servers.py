"""Servers that send to a probe without end, with one thread for each connection."""

import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

FLOOD_SECONDS = 20.0
CHUNK_BYTES = 16 * 1024


@contextmanager
def flooding(
    start: bytes,
    flood: bytes,
    *,
    host: str = "127.0.0.1",
    tls: ssl.SSLContext | None = None,
) -> Iterator[int]:
    """The port of a server that reads once, sends `start`, and repeats `flood` until the peer closes the connection."""
    listening = socket.create_server((host, 0), backlog=256)
    repetitions = CHUNK_BYTES // max(len(flood), 1)
    block = flood * max(repetitions, 1)

    def send(accepted: socket.socket) -> None:
        with suppress(OSError), accepted:
            accepted.settimeout(60)
            connection = tls.wrap_socket(accepted, server_side=True) if tls else accepted
            with connection:
                _ = connection.recv(65536)
                connection.sendall(start)
                ends_at = time.monotonic() + FLOOD_SECONDS
                while block and time.monotonic() < ends_at:
                    connection.sendall(block)

    def accept() -> None:
        with suppress(OSError):
            while True:
                accepted, _ = listening.accept()
                threading.Thread(target=send, args=(accepted,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield listening.getsockname()[1]
    finally:
        with suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)
        listening.close()


def frame(type: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One HTTP/2 frame."""
    return len(payload).to_bytes(3) + bytes([type, flags]) + stream.to_bytes(4) + payload


def headers(block: bytes, *, flags: int = 4) -> bytes:
    return frame(1, flags, 1, block)


SETTINGS = frame(4, 0, 0)
MANY_SETTINGS = struct.pack(">HI", 3, 100) * 2700
LONG_TRAILERS = headers(b"\x40\x01a\x7f\x81\x7f" + b"b" * 16000, flags=0)
BEGUN = SETTINGS + headers(b"\x88\x40\x0ccontent-type\x10application/grpc")
"""Status 200 and the content type of gRPC; data and trailers may follow."""

GRPC_FLOODS: dict[str, tuple[bytes, bytes]] = {
    "unknown-frames": (SETTINGS, frame(0x63, 0, 1)),
    "unknown-frames-with-content": (SETTINGS, frame(0x63, 0, 0, b"x" * 100)),
    "settings": (SETTINGS, frame(4, 0, 0)),
    "settings-with-many-values": (SETTINGS, frame(4, 0, 0, MANY_SETTINGS)),
    "ping": (SETTINGS, frame(6, 0, 0, b"12345678")),
    "window-update": (SETTINGS, frame(8, 0, 1, b"\0\0\0\1")),
    "priority": (SETTINGS, frame(2, 0, 1, b"\0\0\0\0\1")),
    "continuation": (SETTINGS + headers(b"", flags=0), frame(9, 0, 1)),
    "informational-responses": (SETTINGS, headers(b"\x48\x03103")),
    "informational-responses-of-many-headers": (SETTINGS, headers(b"\x48\x03103" + b"\x90" * 250)),
    "huge-trailers": (BEGUN, LONG_TRAILERS),
    "rst-stream": (SETTINGS, frame(3, 0, 3, b"\0\0\0\0")),
    "goaway": (SETTINGS, frame(7, 0, 0, b"\0\0\0\1\0\0\0\0")),
    "empty-data": (BEGUN, frame(0, 0, 1)),
    "padding": (BEGUN, frame(0, 8, 1, b"\xff" + b"\0" * 255)),
    "a-number-without-end": (SETTINGS, headers(b"\x7f" + b"\xff" * 16000)),
    "alt-svc": (SETTINGS, frame(10, 0, 1, b"\0\1ax")),
}

_OK = b"HTTP/1.1 200 OK\r\n"
_CHUNKED = _OK + b"Transfer-Encoding: chunked\r\n\r\n"

HTTP_FLOODS: dict[str, tuple[bytes, bytes]] = {
    "folded-lines": (_OK + b"A: b\r\n", b" \r\n"),
    "short-fields": (_OK, b"a:\r\n"),
    "one-line": (_OK, b"x"),
    "status-line": (b"HTTP/1.1 200 ", b"x"),
    "informational-responses": (b"", b"HTTP/1.1 100 \r\n\r\n"),
    "chunk-extensions": (_CHUNKED, b"1;" + b"e" * 4000 + b"\r\nx\r\n"),
}


def tls_certificates(*certificates: bytes, declared: int = 0) -> bytes:
    """The begin of a TLS 1.2 handshake with this chain; `declared` is the length of the chain if more would follow."""

    def vector(data: bytes, size: int = 0) -> bytes:
        return (size or len(data)).to_bytes(3) + data

    renegotiation_info = bytes.fromhex("0005ff01000100")
    hello = b"\3\3" + bytes(32) + b"\0\xc0\x2b\0" + renegotiation_info
    chain = vector(b"".join(map(vector, certificates)), declared)
    declared_message = declared + 3 if declared else 0
    messages = b"\2" + vector(hello)
    messages += b"\x0b" + vector(chain, declared_message)
    sent = b""
    for at in range(0, len(messages), 16384):
        record = messages[at : at + 16384]
        sent += b"\x16\3\3" + len(record).to_bytes(2) + record
    return sent
