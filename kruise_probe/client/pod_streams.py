"""Commands in a container and connections to a port of a pod, through the API server: pods/exec, pods/portforward.

Both are WebSockets. Every message begins with the number of its channel.

Source: RFC 6455; kubelet pkg/kubelet/.../remotecommand and portforward (websocket.go); protocol v4.channel.k8s.io.
Differs: stdout and stderr only; one port for each stream. The official Python client connects and reads without a
limit, and sends no impersonation headers. So a stream is one of our own connections, with the client's credentials,
proxy and deadlines. websocket-client encodes and decodes frames. No extensions; a message has a size limit.
"""

import asyncio
import base64
import hashlib
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final, NamedTuple, cast
from urllib.parse import quote, urlencode

import msgspec
from websocket import ABNF, WebSocketException, frame_buffer

from kruise_probe.api.errors import ConnectionFailed, KubeError
from kruise_probe.api.meta import DECODE_ERRORS, NamespacedName, decode_nulls
from kruise_probe.client.request import Request
from kruise_probe.client.rest import RestClient
from kruise_probe.client.transport import ResponseStream

PROTOCOL: Final = "v4.channel.k8s.io"
MAX_MESSAGE_BYTES: Final = 1 << 20
"""Maximum size of one message. Runtimes send at most 32 KiB at once."""
MAX_ERROR_BYTES: Final = 64 * 1024
"""Limit of an error channel: the status of a command, or why a port cannot be forwarded."""
PORT_SECONDS: Final = 10.0
"""Deadline of the first messages of a port-forward."""

_STDOUT: Final = 1
_STDERR: Final = 2
_STATUS: Final = 3
_DATA: Final = 0
_ERROR: Final = 1

_GUID: Final = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Message(NamedTuple):
    """A complete message; `opcode` is one of `ABNF`, but not OPCODE_CONT."""

    opcode: int
    payload: bytes


class MessageParser:
    """Incremental parser of the server's messages: no I/O."""

    def __init__(self, max_message_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self._max_message_bytes = max_message_bytes
        self._received = bytearray()
        self._frames = frame_buffer(self._take, skip_utf8_validation=True)
        self._opcode = 0
        self._fragments = bytearray()

    def feed(self, data: bytes) -> None:
        self._received += data

    def _take(self, size: int) -> bytes:
        """Received bytes for the frame. Raises: BlockingIOError, if there are none."""
        frame_bytes = self._frames.length or 0
        message_bytes = len(self._fragments) + frame_bytes
        if message_bytes > self._max_message_bytes:
            raise WebSocketException(f"a message exceeds {self._max_message_bytes} bytes")
        if not self._received:
            raise BlockingIOError
        taken = bytes(self._received[:size])
        del self._received[:size]
        return taken

    def next(self) -> Message | None:
        """Return the next complete message, or None if bytes are missing.

        Raises:
            ConnectionFailed: the frame is malformed, or the message exceeds the limit. Feed no more bytes after it.
        """
        try:
            while True:
                frame = self._frames.recv_frame()
                payload = cast(bytes, frame.data)
                if frame.opcode >= ABNF.OPCODE_CLOSE:
                    return Message(frame.opcode, payload)
                continues = frame.opcode == ABNF.OPCODE_CONT
                if continues != bool(self._opcode):
                    raise WebSocketException("a fragment is out of order")
                self._opcode = self._opcode or frame.opcode
                self._fragments += payload
                if frame.fin:
                    message = Message(self._opcode, bytes(self._fragments))
                    self._opcode = 0
                    self._fragments.clear()
                    return message
        except BlockingIOError:
            return None
        except WebSocketException as error:
            raise ConnectionFailed(f"malformed WebSocket: {error}") from error


def encode(opcode: int, payload: bytes) -> bytes:
    """A frame of a client."""
    return ABNF.create_frame(payload, opcode).format()


class WebSocket:
    """An open stream of binary messages."""

    def __init__(self, stream: ResponseStream) -> None:
        self._stream = stream
        self._parser = MessageParser()

    def send(self, payload: bytes) -> None:
        """Send a binary message."""
        frame = encode(ABNF.OPCODE_BINARY, payload)
        self._stream.write(frame)

    async def receive(self, *, deadline_seconds: float) -> bytes | None:
        """Return the payload of the next message, or None if the stream has ended.

        Raises:
            ConnectionFailed: nothing arrived within the deadline, the connection broke, or the bytes are malformed.
        """
        while True:
            message = self._parser.next()
            if message is None:
                data = await self._stream.read_chunk(deadline_seconds=deadline_seconds)
                if not data:
                    return None
                self._parser.feed(data)
                continue
            await asyncio.sleep(0)  # thousands of messages may have arrived at once
            if message.opcode == ABNF.OPCODE_CLOSE:
                return None
            if message.opcode == ABNF.OPCODE_PING:
                pong = encode(ABNF.OPCODE_PONG, message.payload)
                self._stream.write(pong)
            elif message.opcode != ABNF.OPCODE_PONG:
                return message.payload


@asynccontextmanager
async def open_stream(
    client: RestClient,
    pod: NamespacedName,
    subresource: str,
    query: Sequence[tuple[str, str]],
) -> AsyncIterator[WebSocket]:
    """Open a WebSocket to `exec` or `portforward` of a pod. Leaving the context closes it.

    Raises:
        KubeError: the server refuses the stream, or responds with something else than a WebSocket.
    """
    random_bytes = secrets.token_bytes(16)
    key = base64.b64encode(random_bytes).decode()
    path = quote(f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/{subresource}")
    parameters = urlencode(query, quote_via=quote)
    request = Request(
        "GET",
        f"{path}?{parameters}",
        repeatable=False,  # a command would run twice
        streams=True,
        upgrade="Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Protocol: {PROTOCOL}\r\n",
    )
    response = await client.send(request)
    not_opened = (
        f"{request}: the server responded with status {response.status} instead of a WebSocket"
    )
    if response.stream is None:
        raise ConnectionFailed(not_opened)
    try:
        challenge = f"{key}{_GUID}".encode()
        digest = hashlib.sha1(challenge).digest()
        accept = base64.b64encode(digest).decode()
        if response.headers.get("sec-websocket-accept") != accept:
            raise ConnectionFailed(not_opened)
        if response.headers.get("sec-websocket-protocol") != PROTOCOL:
            raise ConnectionFailed(
                f"{request}: the server does not support the protocol {PROTOCOL}"
            )
        yield WebSocket(response.stream)
    finally:
        response.stream.close()


class OutputTooLarge(Exception):
    """The command printed more than the limit."""


class CommandNotStarted(Exception):
    """The runtime could not run the command. The message is the runtime's."""


class _Cause(msgspec.Struct, frozen=True):
    reason: str = ""
    message: str = ""


class _Details(msgspec.Struct, frozen=True):
    causes: tuple[_Cause, ...] = ()


class _ExecStatus(msgspec.Struct, frozen=True):
    status: str = ""
    message: str = ""
    details: _Details = _Details()


_status_decoder = msgspec.json.Decoder(_ExecStatus)


async def run_command(
    client: RestClient,
    pod: NamespacedName,
    container: str,
    command: Sequence[str],
    *,
    timeout_seconds: float,
    max_output_bytes: int,
) -> tuple[int, bytes, bytes]:
    """Run `command` and return its exit code, stdout and stderr. The timeout begins when the stream is open.

    A command that is still running at its timeout keeps running: the API cannot end it.

    Raises:
        TimeoutError: the command was still running.
        OutputTooLarge: stdout and stderr together exceed `max_output_bytes`.
        CommandNotStarted: for example, there is no such program.
        KubeError: the stream cannot be opened, or it broke.
    """
    query = [("container", container), ("stdout", "true"), ("stderr", "true")]
    query += [("command", argument) for argument in command]
    async with open_stream(client, pod, "exec", query) as stream:
        async with asyncio.timeout(timeout_seconds):
            return await _read_output(stream, timeout_seconds, max_output_bytes)


async def _read_output(
    stream: WebSocket, timeout_seconds: float, max_output_bytes: int
) -> tuple[int, bytes, bytes]:
    stdout = bytearray()
    stderr = bytearray()
    status = bytearray()
    channels = {_STDOUT: stdout, _STDERR: stderr, _STATUS: status}
    deadline_seconds = timeout_seconds + 1
    while (message := await stream.receive(deadline_seconds=deadline_seconds)) is not None:
        if message and message[0] in channels:
            channel = message[0]
            channels[channel] += message[1:]
        output_bytes = len(stdout) + len(stderr)
        if output_bytes > max_output_bytes:
            raise OutputTooLarge
        if len(status) > MAX_ERROR_BYTES:
            raise ConnectionFailed("the status of the command is too long")
    code = _exit_code(bytes(status))
    return code, bytes(stdout), bytes(stderr)


def _exit_code(encoded: bytes) -> int:
    """Return the exit code in the message of a status channel.

    Raises:
        ConnectionFailed: there is no valid status.
        CommandNotStarted: the status has no exit code.
    """
    if not encoded:
        raise ConnectionFailed("the stream ended before the command's exit code arrived")
    try:
        status = decode_nulls(_status_decoder.decode, encoded)
    except DECODE_ERRORS as error:
        raise ConnectionFailed(f"the status of the command cannot be read: {error}") from error
    if status.status == "Success":
        return 0
    for cause in status.details.causes:
        if cause.reason != "ExitCode":
            continue
        text = cause.message
        if text.isascii() and text.isdigit():
            return int(text[:9])
    raise CommandNotStarted(status.message)


class ForwardRefused(KubeError):
    """The port-forward reports an error instead of a connection. The message is the runtime's."""


class ForwardedPort:
    """One connection to a port of the pod."""

    def __init__(self, stream: WebSocket) -> None:
        self._stream = stream

    def send(self, data: bytes) -> None:
        channel = bytes((_DATA,))
        self._stream.send(channel + data)

    async def receive(self, *, deadline_seconds: float) -> bytes:
        """Return the next bytes of the pod; empty at their end.

        Raises:
            ForwardRefused: the runtime reports an error.
            KubeError: the stream broke.
        """
        while True:
            message = await self._stream.receive(deadline_seconds=deadline_seconds)
            if message is None:
                return b""
            if len(message) < 2:
                continue
            if message[0] == _DATA:
                return message[1:]
            if message[0] == _ERROR:
                text = message[1 : MAX_ERROR_BYTES + 1]
                raise ForwardRefused(text.decode(errors="replace"))


@asynccontextmanager
async def forwarded_port(
    client: RestClient, pod: NamespacedName, port: int
) -> AsyncIterator[ForwardedPort]:
    """Connect to `port` in the pod's network namespace.

    The protocol does not confirm a connection. If it is refused, `receive` raises ForwardRefused.

    Raises:
        KubeError: the stream cannot be opened.
    """
    query = [("ports", str(port))]
    async with open_stream(client, pod, "portforward", query) as stream:
        # The first message of each channel is the number of the port. The runtime then connects.
        pending = {_DATA, _ERROR}
        while pending:
            message = await stream.receive(deadline_seconds=PORT_SECONDS)
            if not message:
                raise ConnectionFailed("the port-forward ended before it began")
            pending.discard(message[0])
        yield ForwardedPort(stream)
