"""The leader renews its Lease in a thread, on real time: a slow step of the loop ends no term, a loop that hangs does."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self

import msgspec
import pytest
from support.cases import cases

from kruise_probe.api.core import Lease
from kruise_probe.api.errors import Conflict, NotFound
from kruise_probe.api.resources import LEASES
from kruise_probe.api.times import utc_now
from kruise_probe.manager.leader_election import LeaderElection, LeaderElector, LeadershipLost
from kruise_probe.manager.lease_thread import run_beside

pytestmark = pytest.mark.sockets

DEADLINE_SECONDS = 2.0
LEASE_SECONDS = 3.0


class SharedLease:
    """A server for clients of several threads, without a network."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stored: dict[str, Any] = {}
        self._version = 0
        self.holders: list[str] = []
        self.threads: set[str] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def get(self, *_: Any) -> Lease:
        with self._lock:
            if not self._stored:
                raise NotFound("not found", code=404)
            return self._lease()

    async def create(self, _: Any, body: bytes, **__: Any) -> Lease:
        with self._lock:
            self._store(msgspec.json.decode(body)["spec"])
            return self._lease()

    async def patch(self, _: Any, __: Any, body: bytes, **___: Any) -> Lease:
        patch = msgspec.json.decode(body)
        with self._lock:
            if patch["metadata"]["resourceVersion"] != str(self._version):
                raise Conflict("changed", code=409)
            self._store(self._stored | patch["spec"])
            return self._lease()

    @asynccontextmanager
    async def watch(self, *_: Any, **__: Any) -> AsyncIterator[Self]:
        """Without events, so that candidates read the Lease."""
        yield self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> None:
        raise StopAsyncIteration

    def _store(self, spec: dict[str, Any]) -> None:
        self._stored = spec
        self._version += 1
        self.threads.add(threading.current_thread().name)
        holder = spec["holderIdentity"]
        if holder and holder not in self.holders[-1:]:
            self.holders.append(holder)

    def _lease(self) -> Lease:
        metadata = {"name": "l", "namespace": "s", "resourceVersion": str(self._version)}
        return LEASES.decode(msgspec.json.encode({"metadata": metadata, "spec": self._stored}))


def elector(server: SharedLease, name: str) -> LeaderElector:
    options = LeaderElection(
        "s",
        "l",
        name,
        LEASE_SECONDS,
        DEADLINE_SECONDS,
        0.4,
    )
    client: Any = server
    return LeaderElector(
        lambda: client,
        options,
        now=utc_now,
        in_thread=True,
    )


def compute(seconds: float) -> None:
    """One step of the loop."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


async def test_a_slow_step_ends_no_term() -> None:
    server = SharedLease()
    one = elector(server, "one")

    async def lead() -> None:
        for _ in range(3):
            await asyncio.sleep(0.5)
            compute(0.6 * DEADLINE_SECONDS)
            one.check()

    await one.run(lead)
    assert server.holders == ["one"]
    assert threading.current_thread().name not in server.threads


async def test_a_loop_that_hangs_gives_up_its_role_to_another_candidate() -> None:
    server = SharedLease()
    hung_at: list[float] = []
    led_at: list[float] = []

    async def take_over() -> None:
        led_at.append(time.monotonic())

    async def standby() -> None:
        await elector(server, "two").run(take_over)

    async def lead() -> None:
        other = asyncio.create_task(run_beside(standby))
        await asyncio.sleep(1.0)
        hung_at.append(time.monotonic())
        while not led_at:
            compute(0.1)
        await other

    with pytest.raises(LeadershipLost, match="the event loop has not turned for 2 s"):
        await elector(server, "one").run(lead)
    assert server.holders == ["one", "two"]
    assert led_at[0] - hung_at[0] >= DEADLINE_SECONDS


@cases("cancelled", cancelled=True, ended=False)
async def test_work_beside_the_loop_ends_with_its_task(cancelled: bool) -> None:
    ended = threading.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(60 if cancelled else 0)
        finally:
            ended.set()

    running = asyncio.create_task(run_beside(work))
    await asyncio.sleep(0.1)
    if cancelled:
        running.cancel()
    await asyncio.wait({running})
    assert running.cancelled() == cancelled
    assert ended.is_set()
