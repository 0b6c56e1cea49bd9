"""`pods/portforward`: connections to ports of a pod over a WebSocket.

Source: kubelet pkg/kubelet/server, cri-streaming portforward (websocket.go, httpstream.go); apiserver
pkg/util/proxy/streamtunnel.go.
Differs: connects to the pod's address, not to its loopback, which all pods of a playground share.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from aiohttp import WSMsgType, web

from kruise_probe_playground.apiserver import spdy
from kruise_probe_playground.apiserver.commands import upgraded
from kruise_probe_playground.apiserver.spdy import Frame, Framer, MalformedFrame

TUNNEL: Final = "SPDY/3.1+portforward.k8s.io"
CHANNELS: Final = "v4.channel.k8s.io"
CONNECT_SECONDS: Final = 10.0
MAX_CONNECTIONS: Final = 100
WAITING_CHUNKS: Final = 64
"""Bound of what a connection has received from the client and not yet sent to the pod."""
_READ_BYTES: Final = 32 << 10

Send = Callable[[bytes], Awaitable[None]]
Incoming = asyncio.Queue[bytes]
"""What the client sends to one connection; empty at its end."""


async def serve_ports(request: web.Request, pod: str, ip: str) -> web.WebSocketResponse:
    """Forward connections to the pod with this address, until the client leaves."""
    socket = await upgraded(request, (TUNNEL, CHANNELS))
    if socket.ws_protocol == TUNNEL:
        with suppress(MalformedFrame):
            await _Tunnel(socket, pod, ip).run()
    else:
        await _serve_channels(socket, pod, ip, request.query.get("ports", ""))
    await socket.close()
    return socket


async def _forward(pod: str, ip: str, port: int, incoming: Incoming, send: Send) -> str:
    """Copy both ways until the pod ends the connection. Return why it failed, or nothing."""
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(ip, port)
        sending = asyncio.create_task(_write(writer, incoming))
        try:
            while data := await reader.read(_READ_BYTES):
                await send(data)
        finally:
            sending.cancel()
            writer.close()
    except OSError as error:
        why = os.strerror(error.errno).lower() if error.errno else "i/o timeout"
        return f"error forwarding port {port} to pod {pod}: dial tcp {ip}:{port}: connect: {why}"
    return ""


async def _write(writer: asyncio.StreamWriter, incoming: Incoming) -> None:
    with suppress(OSError):  # the pod has closed the connection
        while data := await incoming.get():
            writer.write(data)
            await writer.drain()
        writer.write_eof()


async def _end(*tasks: "asyncio.Task[None] | asyncio.Task[str]") -> None:
    for each in tasks:
        each.cancel()
    if tasks:
        await asyncio.wait(tasks)


async def _serve_channels(socket: web.WebSocketResponse, pod: str, ip: str, ports: str) -> None:
    """One port: data in channel 0, errors in channel 1. Both begin with the number of the port."""
    if not ports.isdecimal() or not 0 < int(ports[:6]) < 1 << 16:
        return
    for channel in (b"\0", b"\1"):
        await socket.send_bytes(channel + int(ports).to_bytes(2, "little"))
    incoming = Incoming(WAITING_CHUNKS)

    async def send(data: bytes) -> None:
        await socket.send_bytes(b"\0" + data)

    async def receive() -> None:
        async for message in socket:
            if message.type is WSMsgType.BINARY and message.data[:1] == b"\0" != message.data:
                await incoming.put(message.data[1:])

    receiving = asyncio.create_task(receive())
    forwarding = asyncio.create_task(_forward(pod, ip, int(ports), incoming, send))
    try:
        await asyncio.wait((receiving, forwarding), return_when=asyncio.FIRST_COMPLETED)
        if forwarding.done() and (why := forwarding.result()) and not socket.closed:
            await socket.send_bytes(b"\1" + why.encode())
    finally:
        await _end(receiving, forwarding)


class _Tunnel:
    """The connections of one `kubectl port-forward`: each has a stream for data and one for its error."""

    def __init__(self, socket: web.WebSocketResponse, pod: str, ip: str) -> None:
        self._socket = socket
        self._pod = pod
        self._ip = ip
        self._framer = Framer()
        self._error_streams: dict[str, int] = {}
        self._incoming: dict[int, Incoming] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Serve until the client leaves.

        Raises:
            MalformedFrame: the client sent something else.
        """
        try:
            async for message in self._socket:
                if message.type is WSMsgType.BINARY:
                    for frame in self._framer.feed(message.data):
                        await self._handle(frame)
        finally:
            await _end(*self._tasks)

    async def _handle(self, frame: Frame) -> None:
        if frame.kind == spdy.PING:
            await self._socket.send_bytes(self._framer.pong(frame.payload))
        elif frame.kind == spdy.SYN_STREAM:
            await self._open(frame)
        elif incoming := self._incoming.get(frame.stream):
            if frame.payload:
                await incoming.put(frame.payload)
            if frame.final or frame.kind == spdy.RST_STREAM:
                await incoming.put(b"")

    async def _open(self, frame: Frame) -> None:
        await self._socket.send_bytes(self._framer.reply(frame.stream))
        request, port = frame.headers.get("requestid", ""), frame.headers.get("port", "")
        if len(self._tasks) + len(self._error_streams) >= 2 * MAX_CONNECTIONS:
            raise MalformedFrame("too many connections")
        if frame.headers.get("streamtype") == "error":
            self._error_streams[request] = frame.stream
        elif port.isdecimal() and request in self._error_streams:
            self._incoming[frame.stream] = Incoming(WAITING_CHUNKS)
            error_stream = self._error_streams.pop(request)
            task = asyncio.create_task(self._connect(frame.stream, error_stream, int(port[:6])))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _connect(self, stream: int, error_stream: int, port: int) -> None:
        incoming = self._incoming[stream]

        async def send(data: bytes) -> None:
            await self._socket.send_bytes(self._framer.data(stream, data))

        why = await _forward(self._pod, self._ip, port, incoming, send)
        del self._incoming[stream]
        while not incoming.empty():  # so that nothing waits for room in it
            incoming.get_nowait()
        with suppress(ConnectionError):
            error = self._framer.data(error_stream, why.encode(), final=True)
            await self._socket.send_bytes(error)
            await self._socket.send_bytes(self._framer.data(stream, b"", final=True))
