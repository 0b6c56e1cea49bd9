"""`pods/exec`: the streams of a command over a WebSocket. Every message begins with the number of its channel.

Source: kubelet pkg/kubelet/server, cri-streaming remotecommand (websocket.go); protocols v4 and v5.channel.k8s.io.
Differs: no SPDY.
"""

import asyncio
import fcntl
import os
import struct
import termios
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any, Final

import msgspec
from aiohttp import web

from kruise_probe_playground.apiserver import failures
from kruise_probe_playground.apiserver.failures import Failure
from kruise_probe_playground.apiserver.logs import NotOnNode
from kruise_probe_playground.apiserver.requests import is_true
from kruise_probe_playground.apiserver.schema import Json

StartCommand = Callable[[str, Sequence[str], Sequence[int]], Coroutine[Any, Any, int]]
"""Starts a command in the container with this id, with these files as stdin, stdout and stderr. What it returns waits for
the exit code; cancelling kills the command. Raises NotOnNode."""

PROTOCOLS: Final = ("v5.channel.k8s.io", "v4.channel.k8s.io")
MAX_MESSAGE_BYTES: Final = 1 << 20
LAST_OUTPUT_SECONDS: Final = 1.0
"""How long the end of a command waits for the end of its output: a child process may keep it open."""
_READ_BYTES: Final = 32 << 10
_STDIN, _STDOUT, _STDERR, _STATUS, _RESIZE, _CLOSE = 0, 1, 2, 3, 4, 255


def no_commands(
    container: str, command: Sequence[str], files: Sequence[int]
) -> Coroutine[Any, Any, int]:
    """For a server without nodes."""
    raise NotOnNode(f"container {container} does not run")


async def upgraded(request: web.Request, protocols: Sequence[str]) -> web.WebSocketResponse:
    """The WebSocket that the request asks for; fails for other requests."""
    offered = request.headers.get("Sec-WebSocket-Protocol", "")
    if not any(each.strip() in protocols for each in offered.split(",")):
        raise failures.bad_request(
            f"this playground's API server needs a WebSocket with the protocol {' or '.join(protocols)}"
        )
    socket = web.WebSocketResponse(protocols=protocols, max_msg_size=MAX_MESSAGE_BYTES)
    await socket.prepare(request)
    return socket


async def serve_command(
    request: web.Request, container: str, start: StartCommand
) -> web.WebSocketResponse:
    """Run the command of the query, and send its output and its status. A client that leaves ends it."""
    query = request.query
    command = query.getall("command", [])
    if not command:
        raise failures.bad_request("you must specify at least 1 command for the pod")
    socket = await upgraded(request, PROTOCOLS)
    with ExitStack() as ours, ExitStack() as of_command:
        files, outputs, stdin = _open_files(query, ours, of_command)
        try:
            running = asyncio.create_task(start(container, command, files))
        except NotOnNode as error:
            await _send_status(socket, _not_started(str(error)))
            return socket
        of_command.close()
        copying = [asyncio.create_task(_copy(socket, *each)) for each in outputs]
        feeding = asyncio.create_task(_feed(socket, stdin, tty=is_true(query.get("tty"))))
        try:
            await asyncio.wait((running, feeding), return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                await asyncio.wait(copying, timeout=LAST_OUTPUT_SECONDS)
                await _send_status(socket, _ended(running.result()))
        finally:
            for each in (running, feeding, *copying):
                each.cancel()
            await asyncio.wait((running, feeding, *copying))
    return socket


def _open_files(
    query: Mapping[str, str], ours: ExitStack, of_command: ExitStack
) -> tuple[list[int], list[tuple[int, int]], int | None]:
    """The files of the command; the channels of its outputs with our ends; our end of its stdin."""

    def kept(by: ExitStack, descriptor: int) -> int:
        by.callback(os.close, descriptor)
        return descriptor

    if is_true(query.get("tty")):
        main, terminal = os.openpty()
        kept(ours, main)
        return [kept(of_command, terminal)] * 3, [(_STDOUT, main)], main
    reading, writing = os.pipe()
    files, outputs = [kept(of_command, reading)], []
    for channel in (_STDOUT, _STDERR):
        read, write = os.pipe()
        outputs.append((channel, kept(ours, read)))
        files.append(kept(of_command, write))
    if is_true(query.get("stdin")):
        return files, outputs, writing  # `_feed` closes it
    os.close(writing)
    return files, outputs, None


async def _copy(socket: web.WebSocketResponse, channel: int, descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    os.set_blocking(descriptor, False)
    loop.add_reader(descriptor, readable.set)
    try:
        with suppress(OSError):  # of a terminal without processes, or a client that has left
            while True:
                await readable.wait()
                readable.clear()
                with suppress(BlockingIOError):
                    if not (data := os.read(descriptor, _READ_BYTES)):
                        return
                    await socket.send_bytes(bytes((channel,)) + data)
    finally:
        loop.remove_reader(descriptor)


async def _feed(socket: web.WebSocketResponse, stdin: int | None, *, tty: bool) -> None:
    """Write what the client sends to the command's stdin, until the client leaves."""
    closes = not tty
    try:
        async for message in socket:
            channel, data = (message.data[0], message.data[1:]) if message.data else (None, b"")
            if channel == _STDIN and stdin is not None:
                with suppress(OSError):  # the command has closed its stdin
                    await _write(stdin, data)
            elif channel == _RESIZE and stdin is not None and tty:
                with suppress(msgspec.DecodeError, struct.error, KeyError):
                    size = msgspec.json.decode(data, type=dict[str, int])
                    packed = struct.pack("HHHH", size["Height"], size["Width"], 0, 0)
                    fcntl.ioctl(stdin, termios.TIOCSWINSZ, packed)
            elif channel == _CLOSE and stdin is not None and closes:
                os.close(stdin)
                stdin = None
    finally:
        if stdin is not None and closes:
            os.close(stdin)


async def _write(descriptor: int, data: bytes) -> None:
    loop = asyncio.get_running_loop()
    writable = asyncio.Event()
    os.set_blocking(descriptor, False)
    loop.add_writer(descriptor, writable.set)
    try:
        while data:
            await writable.wait()
            writable.clear()
            with suppress(BlockingIOError):
                data = data[os.write(descriptor, data) :]
    finally:
        loop.remove_writer(descriptor)


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
