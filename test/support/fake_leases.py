"""A server of one Lease in memory, behind a network that the test controls."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from kruise_probe.api.core import LEASES, Lease
from kruise_probe.api.errors import AlreadyExists, Conflict, ConnectionFailed, NotFound, ServerError
from kruise_probe.api.meta import EventType, NamespacedName, WatchEvent
from kruise_probe.client.request import PatchType

Watcher = asyncio.Queue[tuple[float, WatchEvent[Lease]]]
"""Events, each with the loop time at which the server sent it."""


class FakeLeases:
    """The server's state: at most one Lease, a version counter, and the watches."""

    def __init__(self) -> None:
        self.stored: dict[str, Any] | None = None
        self.version = 0
        self.writes = 0
        self._watchers: set[Watcher] = set()

    @property
    def holder(self) -> str:
        return str(self.stored["spec"].get("holderIdentity", "")) if self.stored else ""

    def read(self) -> Lease:
        if self.stored is None:
            raise NotFound("no such lease", reason="NotFound")
        return _lease(self.stored)

    def create(self, body: bytes) -> Lease:
        if self.stored is not None:
            raise AlreadyExists("there is one", reason="AlreadyExists")
        return self._store(msgspec.json.decode(body), EventType.ADDED)

    def patch(self, body: bytes) -> Lease:
        if self.stored is None:
            raise NotFound("no such lease", reason="NotFound")
        change = msgspec.json.decode(body)
        expected = change["metadata"]["resourceVersion"]
        if expected != self.stored["metadata"]["resourceVersion"]:
            raise Conflict("the object has been modified", reason="Conflict")
        spec = {**self.stored["spec"], **change["spec"]}
        return self._store({**self.stored, "spec": spec}, EventType.MODIFIED)

    def delete(self) -> None:
        if self.stored is not None:
            gone, self.stored = _lease(self.stored), None
            self._tell(EventType.DELETED, gone)

    def bookmark(self) -> None:
        for watcher in self._watchers:
            event = WatchEvent[Lease](EventType.BOOKMARK, None, str(self.version))
            watcher.put_nowait((asyncio.get_running_loop().time(), event))

    def _store(self, stored: dict[str, Any], kind: EventType) -> Lease:
        self.version += 1
        self.writes += 1
        stored["metadata"] = {**stored["metadata"], "resourceVersion": str(self.version)}
        self.stored = stored
        lease = _lease(stored)
        self._tell(kind, lease)
        return lease

    def _tell(self, kind: EventType, lease: Lease) -> None:
        for watcher in self._watchers:
            event = WatchEvent(kind, lease, lease.resource_version)
            watcher.put_nowait((asyncio.get_running_loop().time(), event))

    def subscribe(self) -> Watcher:
        watcher: Watcher = asyncio.Queue()
        self._watchers.add(watcher)
        return watcher

    def unsubscribe(self, watcher: Watcher) -> None:
        self._watchers.discard(watcher)


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

    async def get(self, resource: Any, key: NamespacedName) -> Any:
        await self._send(resource, key)
        lease = self._leases.read()
        await self._receive()
        return lease

    async def create(self, resource: Any, body: bytes, **_: Any) -> Any:
        await self._send(resource)
        lease = self._leases.create(body)
        await self._receive()
        return lease

    async def patch(
        self, resource: Any, key: NamespacedName, body: bytes, *, patch_type: PatchType
    ) -> Lease:
        assert patch_type is PatchType.MERGE
        await self._send(resource, key)
        lease = self._leases.patch(body)
        await self._receive()
        return lease

    @asynccontextmanager
    async def watch(
        self, resource: Any, *, timeout_seconds: float, **_: Any
    ) -> AsyncIterator[AsyncIterator[WatchEvent[Any]]]:
        await self._send(resource)
        watcher = self._leases.subscribe()
        try:
            yield self._events(watcher, timeout_seconds)
        finally:
            self._leases.unsubscribe(watcher)

    async def _events(
        self, watcher: Watcher, timeout_seconds: float
    ) -> AsyncIterator[WatchEvent[Lease]]:
        if self._leases.stored is not None:
            lease = self._leases.read()
            yield WatchEvent(EventType.ADDED, lease, lease.resource_version)
        try:
            async with asyncio.timeout(timeout_seconds):
                while True:
                    sent_at, event = await watcher.get()
                    await self._receive(since=sent_at)
                    yield event
        except TimeoutError:
            return

    async def _send(self, resource: Any, key: NamespacedName | None = None) -> None:
        assert resource is LEASES
        if key and self._leases.stored:
            assert key == _lease(self._leases.stored).key
        await self._pass()
        if self.refusing:
            raise ServerError("internal error", code=500)

    async def _receive(self, *, since: float | None = None) -> None:
        await self._pass(since)
        if self.losing_answers:
            raise ConnectionFailed("the connection was reset")

    async def _pass(self, since: float | None = None) -> None:
        """Wait for the latency of a message that was sent at `since`, by default now."""
        now = asyncio.get_running_loop().time()
        await asyncio.sleep((now if since is None else since) + self.latency_seconds - now)
        await self._connected.wait()


def _lease(stored: dict[str, Any]) -> Lease:
    return msgspec.convert(stored, Lease)
