"""The faulty connections of simulated processes to the API servers.

`FaultyConnection` takes the place of the client's transport, so everything above it (deadlines, retries, decoding, informers) is the
product's.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from contextvars import Context
from random import Random
from typing import Any, NamedTuple, TypeVar

from simulation.loop import PROCESS
from simulation.servers import ApiServers, refusal

from kruise_probe.api.errors import ConnectionFailed
from kruise_probe.api.times import loop_time
from kruise_probe.client.config import ClusterConfig
from kruise_probe.client.connection import ConnectionBroken
from kruise_probe.client.request import Request
from kruise_probe.client.rest import RestClient
from kruise_probe.client.transport import Response, ResponseStream, Transport
from kruise_probe_playground.apiserver.failures import Failure
from kruise_probe_playground.apiserver.watching import Watch

T = TypeVar("T")

WRITES = ("create", "update", "patch", "delete")
CONFIG = ClusterConfig(server="http://simulated")


class Sent(NamedTuple):
    """A request at the moment when a process sends it. `verb` and `resource` as in roles; `version` of a list or watch."""

    process: str
    verb: str
    resource: str
    name: str
    version: str


class SimulatedStream(ResponseStream):
    """The client's end of a watch."""

    def __init__(self, request: Request, on_close: Callable[[], None]) -> None:
        self._request = request
        self._on_close = on_close
        self._frames: deque[bytes | None] = deque()
        self._wake = asyncio.Event()
        self.broken = False

    def feed(self, frame: bytes | None) -> None:
        """Deliver a frame; None is the end in order."""
        self._frames.append(frame)
        self._wake.set()

    def cut(self) -> None:
        """Break the connection; frames that were delivered can still be read."""
        self.broken = True
        self._wake.set()

    async def read_chunk(self, *, deadline_seconds: float) -> bytes:
        try:
            async with asyncio.timeout(deadline_seconds):
                while not self._frames:
                    if self.broken:
                        raise ConnectionBroken(f"{self._request}: the stream was cut")
                    self._wake.clear()
                    await self._wake.wait()
        except TimeoutError as error:
            raise ConnectionFailed(f"{self._request}: no data") from error
        return self._frames.popleft() or b""

    def write(self, data: bytes) -> None:
        raise AssertionError("only watches are simulated")

    def close(self) -> None:
        self._on_close()


class Chances(NamedTuple):
    """Probabilities for each request, and the longest delay of each way in seconds."""

    lose_request: float = 0.0
    lose_answer: float = 0.0
    duplicate: float = 0.0
    refuse: float = 0.0
    slow: float = 0.0
    slow_seconds: float = 0.0


QUIET = Chances()
LATENCY_SECONDS = 0.002


class FaultyConnection:
    """The connection of one process to an API server; takes the place of the client's transport.

    Attributes:
        server: the API server that the process is connected to, 0 or 1.
        chances: faults of single requests.
        severed: requests hang, and watches deliver nothing.
        dead: the process was killed; nothing passes any more.
        on_send: called in the step that sends a request.
    """

    def __init__(
        self,
        servers: ApiServers,
        random: Random,
        *,
        user_agent: str,
        on_send: Callable[[Sent], None],
    ) -> None:
        self.process = PROCESS.get()
        self.server = 0
        self.chances = QUIET
        self.severed = False
        self.watches_held = False
        self.dead = False
        self._servers = servers
        self._random = random
        self._agent = user_agent
        self._on_send = on_send
        self._healed = asyncio.Event()
        self._streams: dict[SimulatedStream, asyncio.Task[None]] = {}
        self._world = Context()

    def client(
        self, *, field_manager: str, before_send: Callable[[], None] | None = None, **_: object
    ) -> RestClient:
        """A client of the product over this connection, with its own configuration; a `Manager`'s `new_client`."""
        client = RestClient(config=CONFIG, field_manager=field_manager, user_agent=self._agent)
        bound = _BoundTransport(self, before_send)
        client._transport = bound
        return client

    # Faults.

    def sever(self, *, watches_only: bool = False) -> None:
        self.watches_held = True
        self.severed = not watches_only
        self._healed.clear()

    def heal(self) -> None:
        """End a partition, unless the process is dead."""
        if self.dead:
            return
        self.severed = self.watches_held = False
        self._healed.set()

    def cut_streams(self) -> None:
        for stream, pump in list(self._streams.items()):
            pump.cancel()
            stream.cut()

    def kill(self) -> None:
        self.dead = self.severed = self.watches_held = True
        self._healed.clear()
        for pump in list(self._streams.values()):
            pump.cancel()

    # Requests. What happens outside of the process runs in the world's context: it goes on while the process is paused,
    # killed, or has given up.

    async def exchange(self, request: Request, check: Callable[[], None] | None) -> Response:
        call = self._sent(request, check)
        return await self._outside(self._exchange(request, call.verb in WRITES))

    async def _outside(self, work: Coroutine[Any, Any, T]) -> T:
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        task = self._servers.spawn(work, self._world)

        def done(task: asyncio.Task[T]) -> None:
            if task.cancelled():
                return
            error = task.exception()
            if answer.done():
                return
            if error is None:
                answer.set_result(task.result())
            else:
                answer.set_exception(error)

        task.add_done_callback(done)
        return await answer

    async def _exchange(self, request: Request, writes: bool) -> Response:
        random = self._random
        chances = self.chances
        sent_at = loop_time()
        await self._pass()
        if random.random() < chances.lose_request:
            raise ConnectionBroken("lost before the server", was_new=True)
        if random.random() < chances.refuse:
            return refusal(Failure(random.choice((429, 500, 503)), "InternalError", "simulated"))
        response = self._servers.respond(request, self._agent, sent_at)
        if writes and random.random() < chances.duplicate:
            await asyncio.sleep(random.uniform(0, 5))
            self._servers.respond(request, self._agent, sent_at)
        if random.random() < chances.lose_answer:
            raise ConnectionBroken("the answer was lost", was_new=True)
        await self._pass()
        return response

    def _sent(self, request: Request, check: Callable[[], None] | None) -> Sent:
        call = self._servers.call(request, self._agent)
        if check and call.verb in WRITES:
            check()
        version = call.query.get("resourceVersion", "")
        sent = Sent(
            self.process,
            call.verb,
            call.path.resource,
            call.path.name,
            version,
        )
        if not self.dead:
            self._on_send(sent)
        return sent

    async def _pass(self) -> None:
        chances = self.chances
        seconds = self._random.uniform(0, LATENCY_SECONDS)
        if chances.slow and self._random.random() < chances.slow:
            seconds = self._random.uniform(0, chances.slow_seconds)
        await asyncio.sleep(seconds)
        while self.severed:
            await self._healed.wait()

    async def open(self, request: Request) -> Response:
        self._sent(request, None)
        return await self._outside(self._open(request))

    async def _open(self, request: Request) -> Response:
        await self._pass()
        if self._random.random() < self.chances.lose_request:
            raise ConnectionBroken("lost before the server", was_new=True)
        while self.server in self._servers.frozen:
            await self._servers.thawed.wait()
        try:
            watch = self._servers.watch(request, self._agent)
        except Failure as failure:
            return refusal(failure)
        stream = SimulatedStream(request, lambda: self._close(stream))
        self._streams[stream] = self._servers.spawn(self._pump(watch, stream), self._world)
        return Response(200, stream=stream)

    def _close(self, stream: SimulatedStream) -> None:
        pump = self._streams.pop(stream, None)
        if pump:
            pump.cancel()

    async def _pump(self, watch: Watch, stream: SimulatedStream) -> None:
        try:
            frames = watch.frames()
            assert isinstance(frames, AsyncGenerator)
            async with aclosing(frames):
                async for frame in frames:
                    await asyncio.sleep(self._random.uniform(0, LATENCY_SECONDS))
                    while self.watches_held or self.server in self._servers.frozen:
                        held = self._healed if self.watches_held else self._servers.thawed
                        await held.wait()
                    stream.feed(frame)
            stream.feed(None)
        finally:
            watch.close()


class _BoundTransport(Transport):
    """A connection with the check of one client."""

    def __init__(self, connection: FaultyConnection, check: Callable[[], None] | None) -> None:
        self._connection = connection
        self._check = check

    async def __aenter__(self) -> "_BoundTransport":
        return self

    async def __aexit__(self, *_: object) -> None:
        """The connection outlives its clients."""

    async def round_trip(self, request: Request, authorization: str | None) -> Response:
        if request.streams:
            return await self._connection.open(request)
        return await self._connection.exchange(request, self._check)
