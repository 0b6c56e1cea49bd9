"""An API server in memory with the Lease of an election, behind networks that the test controls."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Self

from support.fake_api import FakeApi
from support.wire import Json

from kruise_probe.api.errors import ConnectionFailed, ServerError
from kruise_probe.api.meta import WatchEvent
from kruise_probe.api.resources import LEASES

LEASE = ("manager", "kruise-system")
"""Its name and namespace."""


class FakeLeases(FakeApi):
    """The server."""

    @property
    def stored(self) -> Json | None:
        return self.find(LEASES, *LEASE)

    @property
    def holder(self) -> str:
        return str(self.stored["spec"].get("holderIdentity", "")) if self.stored else ""


class FakeElectionClient:
    """The connection of one manager to the server; get, create, patch and watch of its Lease.

    Attributes:
        latency_seconds: each way; the server acts in between.
        reachable: if not, requests hang, as in a black hole, and watches deliver no events.
        refusing: the server returns 500.
        losing_answers: requests reach the server, and their responses are lost.
    """

    def __init__(self, leases: FakeLeases) -> None:
        self._leases = leases
        self.latency_seconds = 0.001
        self._connected = asyncio.Event()
        self._connected.set()
        self.refusing = False
        self.losing_answers = False

    @property
    def reachable(self) -> bool:
        return self._connected.is_set()

    @reachable.setter
    def reachable(self, reachable: bool) -> None:
        if reachable:
            self._connected.set()
        else:
            self._connected.clear()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def get(self, *request: Any) -> Any:
        return await self._exchange(self._leases.get, *request)

    async def create(self, *request: Any, **options: Any) -> Any:
        return await self._exchange(self._leases.create, *request, **options)

    async def patch(self, *request: Any, **options: Any) -> Any:
        return await self._exchange(self._leases.patch, *request, **options)

    @asynccontextmanager
    async def watch(
        self,
        *_: Any,
        timeout_seconds: int,
        **__: Any,
    ) -> AsyncIterator[AsyncIterator[WatchEvent[Any]]]:
        await self._send()
        watching = self._leases.sources["leases"].watch(
            resource_version="",
            timeout_seconds=timeout_seconds,
            send_initial_events=True,
        )
        async with watching as events:
            yield self._delivered(events)

    async def _delivered(self, events: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for event in events:
            await self._receive()
            yield event

    async def _exchange(self, act: Callable[..., Awaitable[Any]], *of: Any, **options: Any) -> Any:
        await self._send()
        response = await act(*of, **options)
        await self._receive()
        return response

    async def _send(self) -> None:
        await self._pass()
        if self.refusing:
            raise ServerError("internal error", code=500)

    async def _receive(self) -> None:
        await self._pass()
        if self.losing_answers:
            raise ConnectionFailed("the connection was reset")

    async def _pass(self) -> None:
        await asyncio.sleep(self.latency_seconds)
        await self._connected.wait()
