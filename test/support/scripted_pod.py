"""An API server with one pod whose exec and portforward streams follow a script.

aiohttp speaks WebSocket here, so that the client is not tested against itself. The client's streams run against a
real API server and kubelet in test/e2e/test_try.py.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from aiohttp import WSMsgType, web
from support.wire import Json

Socket = web.WebSocketResponse
Exec = Callable[[Socket, Sequence[str]], Awaitable[None]]
PROTOCOL = "v4.channel.k8s.io"


@dataclass
class ScriptedPod:
    """`ports` are where the pod's ports lead to; of others the runtime reports a refusal.

    `refusals` are responses instead of a stream: by subresource, the code and the Status.
    """

    pod: Json
    markers: Sequence[Json] = ()
    execute: Exec | None = None
    ports: Mapping[int, int] = field(default_factory=dict)
    refusals: Mapping[str, tuple[int, Json]] = field(default_factory=dict)
    requests: list[web.Request] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def status(code: int, reason: str, message: str) -> Json:
    return {
        "kind": "Status",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
    }


def exited(code: int, stdout: bytes = b"", stderr: bytes = b"") -> Exec:
    """A command that prints, and exits with `code`; the empty messages are those that kubelet begins with."""

    status = json.dumps(exit_status(code)).encode()
    return streaming(
        b"\x01",
        b"\x02",
        b"\x03",
        b"\x01" + stdout,
        b"\x02" + stderr,
        b"\x03" + status,
    )


def exit_status(code: int) -> Json:
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    return {
        "status": "Failure",
        "reason": "NonZeroExitCode",
        "message": f"command terminated with non-zero exit code: {code}",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


def streaming(*messages: bytes, forever: bytes = b"") -> Exec:
    """Sends the messages as they are; then `forever`, again and again."""

    async def execute(socket: Socket, command: Sequence[str]) -> None:
        for message in messages:
            await socket.send_bytes(message)
        while forever:
            await socket.send_bytes(forever)

    return execute


async def hanging(socket: Socket, command: Sequence[str]) -> None:
    """A command that neither prints nor ends."""
    async for _ in socket:
        pass


@asynccontextmanager
async def serving_pod(pod: ScriptedPod) -> AsyncIterator[ScriptedPod]:
    app = web.Application(middlewares=[_recording(pod)])
    pods = "/api/v1/namespaces/{namespace}/pods"
    markers = "/apis/apps.kruise.io/v1alpha1/namespaces/{namespace}/podprobemarkers"
    handlers = {
        pods: _list,
        markers: _markers,
        pods + "/{name}": _get,
        pods + "/{name}/exec": _exec,
        pods + "/{name}/portforward": _forward,
    }
    for path, handler in handlers.items():
        app.router.add_get(path, partial(handler, pod))
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    pod.port = runner.addresses[0][1]
    try:
        yield pod
    finally:
        await runner.cleanup()


def _recording(pod: ScriptedPod) -> Any:
    @web.middleware
    async def record(request: web.Request, handler: Any) -> web.StreamResponse:
        pod.requests.append(request)
        response: web.StreamResponse = await handler(request)
        return response

    return record


async def _get(pod: ScriptedPod, request: web.Request) -> web.Response:
    name = request.match_info["name"]
    if name == pod.pod["metadata"]["name"]:
        return web.json_response(pod.pod)
    return _refused(404, status(404, "NotFound", f'pods "{name}" not found'))


async def _list(pod: ScriptedPod, _: web.Request) -> web.Response:
    return _page("PodList", [pod.pod])


async def _markers(pod: ScriptedPod, _: web.Request) -> web.Response:
    if "podprobemarkers" in pod.refusals:
        return _refused(*pod.refusals["podprobemarkers"])
    return _page("PodProbeMarkerList", pod.markers)


def _page(kind: str, items: Sequence[Json]) -> web.Response:
    meta = {"resourceVersion": "7"}
    return web.json_response({"kind": kind, "metadata": meta, "items": list(items)})


def _refused(code: int, body: Json) -> web.Response:
    return web.json_response(body, status=code)


def _refusal(pod: ScriptedPod, request: web.Request, resource: str) -> web.Response | None:
    """The scripted refusal, or the real API server's for a request that does not accept a stream."""
    if "*/*" not in request.headers["Accept"]:
        return _refused(406, status(406, "NotAcceptable", "Not Acceptable"))
    if resource in pod.refusals:
        return _refused(*pod.refusals[resource])
    return None


async def _exec(pod: ScriptedPod, request: web.Request) -> web.StreamResponse:
    if refusal := _refusal(pod, request, "exec"):
        return refusal
    assert pod.execute, "no script of the command"
    socket = Socket(protocols=(PROTOCOL,))
    await socket.prepare(request)
    with suppress(ConnectionError):
        await pod.execute(socket, request.query.getall("command"))
    await socket.close()
    return socket


async def _forward(pod: ScriptedPod, request: web.Request) -> web.StreamResponse:
    """As kubelet: the number of the port on both channels, then the bytes; an error on the second channel."""
    if refusal := _refusal(pod, request, "portforward"):
        return refusal
    socket = Socket(protocols=(PROTOCOL,))
    await socket.prepare(request)
    port = int(request.query["ports"])
    for channel in (b"\x00", b"\x01"):
        await socket.send_bytes(channel + port.to_bytes(2, "little"))
    if port not in pod.ports:
        text = (
            f"error forwarding port {port} to pod 12, uid : failed to connect to localhost:{port} inside "
            f"namespace 34: IPv4: dial tcp4 127.0.0.1:{port}: connect: connection refused"
        )
        await socket.send_bytes(b"\x01" + text.encode())
        await socket.close()
        return socket
    reader, writer = await asyncio.open_connection("127.0.0.1", pod.ports[port])
    upwards = asyncio.create_task(_copy_to_pod(socket, writer))
    try:
        with suppress(ConnectionError):
            while data := await reader.read(4096):
                await socket.send_bytes(b"\x00" + data)
    finally:
        upwards.cancel()
        writer.close()
    await socket.close()
    return socket


async def _copy_to_pod(socket: Socket, writer: asyncio.StreamWriter) -> None:
    async for message in socket:
        if message.type is WSMsgType.BINARY:
            writer.write(message.data[1:])
    writer.close()
