"""Commands in a container and connections to a port of a pod, through the API server: pods/exec, pods/portforward.

Every message begins with the number of its channel.

Source: kubelet pkg/kubelet/.../remotecommand and portforward (websocket.go); protocol v4.channel.k8s.io.
Differs: stdout and stderr only; one port for each stream.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

import msgspec

from kruise_probe.api.errors import ConnectionFailed, KubeError
from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.meta import DECODE_ERRORS
from kruise_probe.client.rest import RestClient
from kruise_probe.client.websocket import WebSocket

PROTOCOL: Final = "v4.channel.k8s.io"
MAX_ERROR_BYTES: Final = 64 * 1024
"""Limit of an error channel: the status of a command, or why a port cannot be forwarded."""
PORT_SECONDS: Final = 10.0
"""Deadline of the first messages of a port-forward."""

_STDOUT, _STDERR, _STATUS = 1, 2, 3
_DATA, _ERROR = 0, 1


class OutputTooLarge(Exception):
    """The command printed more than the limit."""


class CommandNotStarted(Exception):
    """The runtime could not run the command. The message is the runtime's."""


class CommandOutput(NamedTuple):
    exit_code: int
    stdout: bytes
    stderr: bytes


class _Cause(msgspec.Struct, frozen=True):
    reason: str = ""
    message: str = ""


class _Details(msgspec.Struct, frozen=True):
    causes: tuple[_Cause, ...] | None = None


class _ExecStatus(msgspec.Struct, frozen=True):
    status: str = ""
    message: str = ""
    details: _Details | None = None


_status_decoder = msgspec.json.Decoder(_ExecStatus)


async def run_command(
    client: RestClient,
    pod: NamespacedName,
    container: str,
    command: Sequence[str],
    *,
    timeout_seconds: float,
    max_output_bytes: int,
) -> CommandOutput:
    """Run `command` and return its output. The timeout begins when the stream is open.

    A command that is still running at its timeout keeps running: the API cannot end it.

    Raises:
        TimeoutError: the command was still running.
        OutputTooLarge: stdout and stderr together exceed `max_output_bytes`.
        CommandNotStarted: for example, there is no such program.
        KubeError: the stream cannot be opened, or it broke.
    """
    query = [("container", container), ("stdout", "true"), ("stderr", "true")]
    query += [("command", each) for each in command]
    async with client.open_pod_stream(pod, "exec", query, protocol=PROTOCOL) as stream:
        async with asyncio.timeout(timeout_seconds):
            return await _read_output(stream, timeout_seconds, max_output_bytes)


async def _read_output(
    stream: WebSocket, timeout_seconds: float, max_output_bytes: int
) -> CommandOutput:
    channels = {_STDOUT: bytearray(), _STDERR: bytearray(), _STATUS: bytearray()}
    stdout, stderr, status = channels.values()
    while (message := await stream.receive(deadline_seconds=timeout_seconds + 1)) is not None:
        if message and message[0] in channels:
            channels[message[0]] += message[1:]
        if len(stdout) + len(stderr) > max_output_bytes:
            raise OutputTooLarge
        if len(status) > MAX_ERROR_BYTES:
            raise ConnectionFailed("the status of the command is too long")
    return CommandOutput(_exit_code(bytes(status)), bytes(stdout), bytes(stderr))


def _exit_code(encoded: bytes) -> int:
    """Return the exit code in the message of a status channel.

    Raises:
        ConnectionFailed: there is no valid status.
        CommandNotStarted: the status has no exit code.
    """
    if not encoded:
        raise ConnectionFailed("the stream ended before the command's exit code arrived")
    try:
        status = _status_decoder.decode(encoded)
    except DECODE_ERRORS as error:
        raise ConnectionFailed(f"the status of the command cannot be read: {error}") from error
    if status.status == "Success":
        return 0
    causes = (status.details.causes if status.details else None) or ()
    for each in causes:
        if each.reason == "ExitCode" and each.message.isascii() and each.message.isdigit():
            return int(each.message[:9])
    raise CommandNotStarted(status.message)


class ForwardRefused(KubeError):
    """The port-forward reports an error instead of a connection. The message is the runtime's."""


class ForwardedPort:
    """One connection to a port of the pod."""

    def __init__(self, stream: WebSocket) -> None:
        self._stream = stream

    def send(self, data: bytes) -> None:
        self._stream.send(bytes((_DATA,)) + data)

    async def receive(self, *, deadline_seconds: float) -> bytes:
        """Return the next bytes of the pod; empty at their end.

        Raises:
            ForwardRefused: the runtime reports an error.
            KubeError: the stream broke.
        """
        while (
            message := await self._stream.receive(deadline_seconds=deadline_seconds)
        ) is not None:
            if len(message) > 1 and message[0] == _DATA:
                return message[1:]
            if len(message) > 1 and message[0] == _ERROR:
                raise ForwardRefused(message[1 : MAX_ERROR_BYTES + 1].decode(errors="replace"))
        return b""

    async def wait_until_started(self) -> None:
        """Wait for the first message of each channel, the number of the port. The runtime then connects."""
        pending = {_DATA, _ERROR}
        while pending:
            message = await self._stream.receive(deadline_seconds=PORT_SECONDS)
            if not message:
                raise ConnectionFailed("the port-forward ended before it began")
            pending.discard(message[0])


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
    async with client.open_pod_stream(pod, "portforward", query, protocol=PROTOCOL) as stream:
        forwarded = ForwardedPort(stream)
        await forwarded.wait_until_started()
        yield forwarded
