"""Runs one attempt of a probe from here, through the API server, with the daemon's own prober.

A prober gets one end of a socket pair. Tasks move bytes between the other end and a port-forward. So the prober keeps
its deadlines and its limit of bytes.

Source: kubectl exec and port-forward.
Differs: the timeout of a command does not end the command; the API server has no request for that.
The runtime connects to the loopback address of the pod's network namespace, where the daemon connects to the pod's IP.
A port-forward reports a refused connection, but does not confirm an accepted one.
"""

import asyncio
import contextlib
import errno
import socket
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Final

from kruise_probe import __version__
from kruise_probe.api.criteria import MAX_WORDS, path_steps
from kruise_probe.api.errors import Forbidden, KubeError, NotFound
from kruise_probe.api.messages import normalise_message
from kruise_probe.api.meta import HostPort, NamespacedName
from kruise_probe.api.probe import ExecAction, Probe, TCPSocketAction
from kruise_probe.api.v1alpha1 import ContainerProbe, ProbeState
from kruise_probe.client.pod_streams import (
    CommandNotStarted,
    ForwardedPort,
    ForwardRefused,
    OutputTooLarge,
    forwarded_port,
    run_command,
)
from kruise_probe.client.rest import RestClient
from kruise_probe.daemon.cri.runtime import (
    MAX_EXEC_RESPONSE_BYTES,
    ExecImpossible,
    ExecOutputTooLarge,
    ExecResult,
    ExecTimeout,
)
from kruise_probe.daemon.probers import prober_for
from kruise_probe.daemon.probers.dialing import connect_error
from kruise_probe.daemon.probers.exec import Commands
from kruise_probe.daemon.probers.prober import (
    CouldNotProbe,
    Prober,
    ProbeResult,
    Target,
    address_of,
)
from kruise_probe.daemon.probers.values import NoValue
from kruise_probe.inspection.attempts import TrialResult, not_run

REFUSAL_SECONDS: Final = 1.0
"""How long a tcpSocket probe waits for a refusal, which takes a few milliseconds after the port-forward has begun."""
MAX_STREAM_SECONDS: Final = 3600.0
"""Deadline of a forwarded connection; that of the prober is shorter."""
NEAREST: Final = 3
"""How many names are shown if there is no value."""
_COPIED_BYTES: Final = 16 * 1024
_ERRNOS: Final = {
    "connection refused": errno.ECONNREFUSED,
    "connection reset by peer": errno.ECONNRESET,
    "broken pipe": errno.EPIPE,
}
"""Go's texts in errors of a port-forward."""


class ForwardFailed(Exception):
    """The port-forward does not work; the text has the reason."""


@dataclass(eq=False)
class _Tunnel:
    """The port-forward behind one socket, and how it failed."""

    address: HostPort
    failure: KubeError | None = None
    began: asyncio.Future[None] = field(default_factory=asyncio.Future)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def errno(self) -> int:
        """The error of the connection in the pod; 0 if there is none."""
        if not isinstance(self.failure, ForwardRefused):
            return 0
        text = str(self.failure)
        for words, code in _ERRNOS.items():
            if words in text:
                return code
        return 0

    def check(self) -> None:
        """Raise ForwardFailed if the port-forward failed, unless it reports an error of the connection."""
        if self.failure is not None and not self.errno:
            raise ForwardFailed(str(self.failure)) from self.failure


class ForwardedSocket(socket.socket):
    """The prober's end of a socket pair. It behaves like a TCP socket that connects to the pod."""

    def __init__(self, descriptor: int, tunnel: _Tunnel) -> None:
        super().__init__(fileno=descriptor)  # a socket pair has another family on Windows
        self.setblocking(False)
        self._tunnel = tunnel

    def connect_ex(self, address: object) -> int:
        self._tunnel.check()
        return self._tunnel.errno

    def getsockname(self) -> tuple[str, int]:
        return ("", 0)  # probers treat a connection whose two addresses are equal as one to itself

    def recv(self, size: int, flags: int = 0) -> bytes:
        """Receive as from the pod.

        Raises:
            ProbeConnectionFailed: the pod refused the connection.
            OSError: the pod reset it.
            ForwardFailed: the port-forward failed.
        """
        try:
            data = super().recv(size, flags)
        except ConnectionResetError:  # the other end of the pair was closed
            data = b""
        if not data:
            self._tunnel.check()
            code = self._tunnel.errno
            if code == errno.ECONNREFUSED:
                raise connect_error(self._tunnel.address, code)
            if code:
                raise OSError(code, "")
        return data


@dataclass(eq=False)
class Forwarder:
    """Opens sockets that are connected to a pod by port-forwards, whose tasks and sockets `forwarder_to` ends."""

    client: RestClient
    pod: NamespacedName
    group: asyncio.TaskGroup
    sockets: contextlib.ExitStack
    prepared: dict[HostPort, ForwardedSocket] = field(default_factory=dict)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def prepare(self, address: HostPort, *, wait_for_refusal: bool) -> None:
        """Begin the port-forward of the next socket for `address`, so that an attempt does not wait for it.

        Raises:
            KubeError: the port-forward cannot be opened.
        """
        tunnel = _Tunnel(address)
        opened = self._open(tunnel)
        self.prepared[address] = self.sockets.enter_context(opened)
        await tunnel.began
        if wait_for_refusal:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REFUSAL_SECONDS):
                    await tunnel.ended.wait()

    def open_socket(self, address: HostPort) -> socket.socket:
        """A socket for one connection to `address`: the prepared one, or a new one."""
        prepared = self.prepared.pop(address, None)
        if prepared is not None:
            return prepared
        tunnel = _Tunnel(address)
        return self._open(tunnel)

    def _open(self, tunnel: _Tunnel) -> ForwardedSocket:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self.sockets.enter_context(ours)  # a task that is cancelled at once closes nothing
        task = self.group.create_task(self._forward(tunnel, ours))
        self.tasks.append(task)
        descriptor = theirs.detach()
        return ForwardedSocket(descriptor, tunnel)

    async def _forward(self, tunnel: _Tunnel, ours: socket.socket) -> None:
        """Forward until the prober closes its socket. An error is kept in `tunnel`."""
        with ours:
            try:
                async with forwarded_port(self.client, self.pod, tunnel.address.port) as port:
                    tunnel.began.set_result(None)
                    async with asyncio.TaskGroup() as both:
                        receiving = both.create_task(_receive(tunnel, ours, port))
                        sending = both.create_task(_send(ours, port))
                        sending.add_done_callback(lambda _: receiving.cancel())
            except KubeError as error:
                tunnel.failure = error
                tunnel.began.set_exception(error)
                _ = tunnel.began.exception()  # only a prepared socket has a waiter


@contextlib.asynccontextmanager
async def forwarder_to(client: RestClient, pod: NamespacedName) -> AsyncIterator[Forwarder]:
    """A forwarder. At the end its port-forwards are cancelled; its ends of the sockets and an unused one are closed."""
    with contextlib.ExitStack() as sockets:
        async with asyncio.TaskGroup() as group:
            forwarder = Forwarder(
                client,
                pod,
                group,
                sockets,
            )
            try:
                yield forwarder
            finally:
                for task in forwarder.tasks:
                    task.cancel()


async def _receive(
    tunnel: _Tunnel,
    ours: socket.socket,
    port: ForwardedPort,
) -> None:
    """Copy what the pod sends until it ends the connection. The prober then reads an end of file."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError):  # the prober has closed its socket
        try:
            while data := await port.receive(deadline_seconds=MAX_STREAM_SECONDS):
                await loop.sock_sendall(ours, data)
        except KubeError as error:
            tunnel.failure = error
        tunnel.ended.set()
        ours.shutdown(socket.SHUT_WR)


async def _send(ours: socket.socket, port: ForwardedPort) -> None:
    """Copy what the prober sends until it closes its socket."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError):  # the prober closed its socket before it had read everything
        while data := await loop.sock_recv(ours, _COPIED_BYTES):
            port.send(data)


NOT_SERVED: Final = "could not find the requested resource"
"""The API server's words for a path that it does not serve."""
_EXEC_FAILED: Final = ("Internal error occurred: ", "error executing command in container: ")
"""Words of the API server and of kubelet before those of the runtime."""


@dataclass(eq=False)
class PodCommands(Commands):
    """Runs the commands of probes by pods/exec. The `container_id` of a target is the name of its container.

    Attributes:
        stderr: of the last command.
    """

    client: RestClient
    pod: NamespacedName
    stderr: bytes = b""

    async def exec_sync(
        self, container_id: str, command: Sequence[str], *, timeout_seconds: float
    ) -> ExecResult:
        """Run the command.

        Raises:
            RuntimeFailure: as the daemon's runtime.
            KubeError: the API server refuses the request, or the stream broke.
        """
        try:
            output = await run_command(
                self.client,
                self.pod,
                container_id,
                command,
                timeout_seconds=timeout_seconds,
                max_output_bytes=MAX_EXEC_RESPONSE_BYTES,
            )
        except TimeoutError as error:
            raise ExecTimeout(timeout_seconds) from error
        except OutputTooLarge as error:
            raise ExecOutputTooLarge from error
        except CommandNotStarted as error:
            text = str(error)
            for words in _EXEC_FAILED:
                text = text.removeprefix(words)
            raise ExecImpossible(text) from error
        result = ExecResult(*output)
        self.stderr = result.stderr
        return result


async def run_probe(
    client: RestClient, pod: NamespacedName, entry: ContainerProbe, target: Target
) -> TrialResult:
    """Run one attempt. It ends within the probe's timeout, plus the time to open the stream.

    The `container_id` of `target` is the name of the container.
    """
    probe = entry.probe
    subresource = "exec" if isinstance(probe.handler, ExecAction) else "portforward"
    commands = PodCommands(client, pod)
    async with forwarder_to(client, pod) as forwarder:
        prober = prober_for(
            entry,
            commands=commands,
            user_agent=f"kruise-probe/{__version__}",
            open_socket=forwarder.open_socket,
        )
        try:
            await _prepare(forwarder, probe, target)
            result = await _attempt(prober, entry, target)
            if result.state is ProbeState.SUCCEEDED:
                return result._replace(stderr=normalise_message(commands.stderr))
            return result
        except CouldNotProbe as error:
            message = normalise_message(str(error))
            return TrialResult(
                ProbeState.UNKNOWN,
                message,
                found=_nearest_names(entry, error),
            )
        except ForwardFailed as error:
            message = f"PortForwardFailed: {error}"
        except Forbidden as error:
            message = f"Forbidden: {error.message}; it needs get and create on pods/{subresource}"
        except NotFound as error:
            message = f"StreamNotFound: {error.message}"
            if NOT_SERVED in error.message:
                message = f"StreamNotServed: this API server has no pods/{subresource}; use one with real nodes, not the playground"
        except KubeError as error:
            message = f"StreamFailed: {error}"
    return not_run(normalise_message(message))


async def _prepare(forwarder: Forwarder, probe: Probe, target: Target) -> None:
    """Open the port-forward of the first connection, so that its time is not part of the attempt."""
    action = probe.http_get or probe.tcp_socket or probe.grpc
    if action is None:
        return
    address = address_of(target, action.port)
    is_tcp = action is probe.tcp_socket
    await forwarder.prepare(address, wait_for_refusal=is_tcp)


async def _attempt(
    prober: Prober,
    entry: ContainerProbe,
    target: Target,
) -> TrialResult:
    loop = asyncio.get_running_loop()
    began = loop.time()
    result = await prober.run(target)
    seconds: float | None = loop.time() - began
    if isinstance(entry.probe.handler, TCPSocketAction):
        seconds = None  # a port-forward does not say when the connection was established
    state = ProbeState.FAILED
    if result.succeeded:
        state = ProbeState.SUCCEEDED
    return TrialResult(
        state,
        result.message,
        seconds,
        found=_found(entry, result),
    )


def _found(entry: ContainerProbe, result: ProbeResult) -> str:
    """The value with its source, and what becomes of it."""
    extract = entry.extract
    if extract is None or not result.value:
        return ""
    found = f"{extract.source} = {result.value}"
    if result.succeeded and extract.step is not None:
        found += f" (step {extract.step} → {result.message})"
    return found


def _nearest_names(entry: ContainerProbe, error: CouldNotProbe) -> str:
    """The names in the output that are most like the wanted one; for a pattern, the first lines."""
    extract = entry.extract
    if extract is None or not isinstance(error.__cause__, NoValue):
        return ""
    wanted = ""
    if extract.metric is not None:
        wanted = extract.metric.name
    if extract.json_path is not None:
        steps = path_steps(extract.json_path)
        wanted = str(steps[-1])

    def likeness(name: str) -> float:
        return SequenceMatcher(None, wanted, name).quick_ratio()

    # A longer name cannot be written in `extract`.
    found = error.__cause__.names()
    names = [name for name in found if 0 < len(name) <= MAX_WORDS]
    names.sort(key=likeness, reverse=True)
    if not names:
        return ""
    listed = ", ".join(names[:NEAREST])
    intro = "the nearest names are" if extract.regex is None else "the output begins with:"
    return f"{intro} {listed}"
