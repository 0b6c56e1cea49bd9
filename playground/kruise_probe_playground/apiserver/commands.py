"""`pods/exec`: the streams of a command over a WebSocket. Every message begins with the number of its channel.

Source: kubelet pkg/kubelet/server, cri-streaming remotecommand (websocket.go); protocols v4 and v5.channel.k8s.io.
Differs: no SPDY.
"""

import asyncio
import fcntl
import os
import struct
import termios
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from io import FileIO
from typing import Final

import msgspec
from aiohttp import web

from kruise_probe_playground.apiserver import failures
from kruise_probe_playground.apiserver.failures import Failure
from kruise_probe_playground.apiserver.logs import Containers, NotOnNode
from kruise_probe_playground.apiserver.requests import read_query
from kruise_probe_playground.apiserver.schema import Json


class ExecOptions(msgspec.Struct, frozen=True):
    """core/v1 PodExecOptions, without the command, which is repeated."""

    container: str = ""
    stdin: bool = False
    tty: bool = False


PROTOCOLS: Final = ("v5.channel.k8s.io", "v4.channel.k8s.io")
MAX_MESSAGE_BYTES: Final = 1 << 20
LAST_OUTPUT_SECONDS: Final = 1.0
"""How long the end of a command waits for the end of its output: a child process may keep it open."""
_READ_BYTES: Final = 32 << 10
_STDOUT = 1
_STDERR = 2
_STATUS = 3
_STDIN = b"\0"
_RESIZE = b"\4"
_CLOSE = b"\xff"


async def upgraded(request: web.Request, protocols: Sequence[str]) -> web.WebSocketResponse:
    """The WebSocket that the request asks for; fails for other requests."""
    offered = request.headers.get("Sec-WebSocket-Protocol", "")
    if not any(protocol.strip() in protocols for protocol in offered.split(",")):
        raise failures.bad_request(
            f"this playground's API server needs a WebSocket with the protocol {' or '.join(protocols)}"
        )
    socket = web.WebSocketResponse(protocols=protocols, max_msg_size=MAX_MESSAGE_BYTES)
    await socket.prepare(request)
    return socket


async def serve_command(
    request: web.Request, container: str, containers: Containers
) -> web.WebSocketResponse:
    """Run the command of the query, and send its output and its status. A client that leaves ends it."""
    command = request.query.getall("command", [])
    if not command:
        raise failures.bad_request("you must specify at least 1 command for the pod")
    options = read_query(request.query, ExecOptions)
    socket = await upgraded(request, PROTOCOLS)
    with ExitStack() as ours, ExitStack() as of_command:
        files, outputs, stdin = _open_files(options, ours, of_command)
        try:
            running = asyncio.create_task(containers.start_command(container, command, files))
        except NotOnNode as error:
            await _send_status(socket, _not_started(str(error)))
            return socket
        of_command.close()
        copying = [asyncio.create_task(_copy(socket, *output)) for output in outputs]
        feeding = asyncio.create_task(_feed(socket, stdin, tty=options.tty))
        try:
            await asyncio.wait((running, feeding), return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                await asyncio.wait(copying, timeout=LAST_OUTPUT_SECONDS)
                await _send_status(socket, _ended(running.result()))
        finally:
            for task in (running, feeding, *copying):
                task.cancel()
            await asyncio.wait((running, feeding, *copying))
    return socket


def _open_files(
    options: ExecOptions, ours: ExitStack, of_command: ExitStack
) -> tuple[list[int], list[tuple[int, FileIO]], FileIO]:
    """The files of the command; the channels of its outputs with our ends; our end of its stdin."""

    def end(descriptor: int) -> FileIO:
        os.set_blocking(descriptor, False)
        return ours.enter_context(FileIO(descriptor, "r+"))

    if options.tty:
        main, terminal = os.openpty()
        of_command.callback(os.close, terminal)
        screen = end(main)
        return [terminal] * 3, [(_STDOUT, screen)], screen
    read_stdin, write_stdin = os.pipe()
    read_stdout, write_stdout = os.pipe()
    read_stderr, write_stderr = os.pipe()
    files = [read_stdin, write_stdout, write_stderr]
    for file in files:
        of_command.callback(os.close, file)
    stdin = end(write_stdin)
    if not options.stdin:
        stdin.close()
    return files, [(_STDOUT, end(read_stdout)), (_STDERR, end(read_stderr))], stdin


async def _copy(socket: web.WebSocketResponse, channel: int, output: FileIO) -> None:
    loop = asyncio.get_running_loop()
    with suppress(OSError):  # of a terminal without processes, or a client that has left
        while True:
            await _wait(output, loop.add_reader, loop.remove_reader)
            if not (data := output.read(_READ_BYTES)):
                return
            await socket.send_bytes(bytes((channel,)) + data)


async def _feed(socket: web.WebSocketResponse, stdin: FileIO, *, tty: bool) -> None:
    """Write what the client sends to the command's stdin, until the client leaves."""
    async for message in socket:
        channel = message.data[:1]
        data = message.data[1:]
        if channel == _STDIN:
            with suppress(OSError, ValueError):  # the command has closed its stdin, or has none
                await _write(stdin, data)
        elif channel == _RESIZE and tty:
            with suppress(msgspec.DecodeError, struct.error, KeyError):
                size = msgspec.json.decode(
                    data,
                    type=dict[str, int],
                )
                packed = struct.pack(
                    "HHHH",
                    size["Height"],
                    size["Width"],
                    0,
                    0,
                )
                fcntl.ioctl(stdin, termios.TIOCSWINSZ, packed)
        elif channel == _CLOSE and not tty:
            stdin.close()


async def _write(stdin: FileIO, data: bytes) -> None:
    loop = asyncio.get_running_loop()
    while data:
        await _wait(stdin, loop.add_writer, loop.remove_writer)
        data = data[stdin.write(data) :]


async def _wait(
    file: FileIO,
    add: Callable[..., None],
    remove: Callable[[FileIO], bool],
) -> None:
    """Wait until the file can be read or written."""
    ready = asyncio.Event()
    add(file, ready.set)
    try:
        await ready.wait()
    finally:
        remove(file)


async def _send_status(socket: web.WebSocketResponse, status: Json) -> None:
    with suppress(ConnectionError):
        await socket.send_bytes(bytes((_STATUS,)) + msgspec.json.encode(status))
        await socket.close()


def _ended(exit_code: int) -> Json:
    if exit_code == 0:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {exit_code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(exit_code)}]},
    }


def _not_started(why: str) -> Json:
    message = f"Internal error occurred: error executing command in container: {why}"
    return Failure(500, "InternalError", message).status
