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
_READ_BYTES: Final = 32 << 10

Send = Callable[[bytes], Awaitable[None]]


async def serve_ports(request: web.Request, pod: str, ip: str) -> web.WebSocketResponse:
    """Forward connections to the pod with this address, until the client leaves."""
    socket = await upgraded(request, (TUNNEL, CHANNELS))
    if socket.ws_protocol == TUNNEL:
        with suppress(MalformedFrame):
            await _Tunnel(socket, pod, ip).run()
    else:
        await _serve_channels(
            socket,
            pod,
            ip,
            request.query.get("ports", ""),
        )
    await socket.close()
    return socket


class _Connection:
    """A connection to a port of the pod."""

    def __init__(
        self,
        pod: str,
        ip: str,
        port: int,
        send: Send,
    ) -> None:
        self._name = f"port {port} to pod {pod}: dial tcp {ip}:{port}"
        self._opening = asyncio.create_task(asyncio.open_connection(ip, port))
        self._send = send

    async def run(self) -> str:
        """Send what the pod sends, until it ends the connection. Return why there is no connection, or nothing."""
        try:
            reader, writer = await self._opening
        except OSError as error:
            why = os.strerror(error.errno or 0).lower()
            return f"error forwarding {self._name}: connect: {why}"
        try:
            with suppress(OSError):
                while data := await reader.read(_READ_BYTES):
                    await self._send(data)
        finally:
            writer.close()
        return ""

    async def write(self, data: bytes, *, final: bool) -> None:
        with suppress(OSError):  # the pod has closed the connection
            _, writer = await self._opening
            writer.write(data)
            await writer.drain()
            if final:
                writer.write_eof()


async def _end(*tasks: "asyncio.Task[None]") -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


async def _serve_channels(
    socket: web.WebSocketResponse,
    pod: str,
    ip: str,
    ports: str,
) -> None:
    """One port: data in channel 0, errors in channel 1. Both begin with the number of the port."""
    if not ports.isdecimal() or not 0 < int(ports[:6]) < 1 << 16:
        return
    for channel in (b"\0", b"\1"):
        await socket.send_bytes(channel + int(ports).to_bytes(2, "little"))
    connection = _Connection(
        pod,
        ip,
        int(ports),
        lambda data: socket.send_bytes(b"\0" + data),
    )

    async def run() -> None:
        if why := await connection.run():
            await socket.send_bytes(b"\1" + why.encode())
        await socket.close()

    running = asyncio.create_task(run())
    try:
        async for message in socket:
            if message.type is WSMsgType.BINARY and message.data[:1] == b"\0":
                await connection.write(message.data[1:], final=False)
    finally:
        await _end(running)


class _Tunnel:
    """The connections of one `kubectl port-forward`: each has a stream for data and one for its error."""

    def __init__(
        self,
        socket: web.WebSocketResponse,
        pod: str,
        ip: str,
    ) -> None:
        self._socket = socket
        self._pod = pod
        self._ip = ip
        self._framer = Framer()
        self._error_streams: dict[str, int] = {}
        self._connections: dict[int, _Connection] = {}
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
        elif connection := self._connections.get(frame.stream):
            final = frame.final or frame.kind == spdy.RST_STREAM
            await connection.write(frame.payload, final=final)

    async def _open(self, frame: Frame) -> None:
        await self._socket.send_bytes(self._framer.reply(frame.stream))
        request = frame.headers.get("requestid", "")
        port = frame.headers.get("port", "")
        if frame.headers.get("streamtype") == "error":
            self._error_streams[request] = frame.stream
        elif port.isdecimal() and request in self._error_streams:
            stream = frame.stream
            connection = self._connections[stream] = _Connection(
                self._pod,
                self._ip,
                int(port[:5]),
                lambda data: self._socket.send_bytes(self._framer.data(stream, data)),
            )
            run = self._run(
                connection,
                stream,
                self._error_streams.pop(request),
            )
            task = asyncio.create_task(run)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run(self, connection: _Connection, stream: int, error_stream: int) -> None:
        why = await connection.run()
        del self._connections[stream]
        with suppress(ConnectionError):
            error = self._framer.data(
                error_stream,
                why.encode(),
                final=True,
            )
            await self._socket.send_bytes(error)
            await self._socket.send_bytes(
                self._framer.data(
                    stream,
                    b"",
                    final=True,
                )
            )
