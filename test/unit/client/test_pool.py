"""Which request gets which connection, on virtual time: over a balancer that allows few, and servers with 5xx."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from random import Random

import pytest
from structlog.testing import capture_logs
from support.cases import cases
from support.fake_transport import FakeTransport

from kruise_probe.api.errors import ConnectionFailed
from kruise_probe.api.times import loop_time
from kruise_probe.client.cluster_config import ClusterConfig
from kruise_probe.client.connection import HttpConnection
from kruise_probe.client.pool import Pool
from kruise_probe.client.pool_policy import MAX_DIALS, Closing, GivingUp, Growth, Turn
from kruise_probe.client.request import Request

LEASE = Request("PATCH", "/apis/coordination.k8s.io/v1/namespaces/n/leases/l")
WATCH = Request("GET", "/api/v1/pods?watch=true", streams=True)
READ = Request("GET", "/api/v1/pods")
WRITE = Request("PATCH", "/api/v1/namespaces/n/pods/p/status")


class Balancer:
    """Allows `most` connections at once; a further one fails after `seconds`."""

    def __init__(self, most: int, *, seconds: float) -> None:
        self.most = most
        self.seconds = seconds
        self.dials: list[float] = []
        self.transports: list[FakeTransport] = []

    @property
    def open(self) -> int:
        return sum(not transport.closing for transport in self.transports)

    async def dial(self) -> HttpConnection:
        self.dials.append(loop_time())
        await asyncio.sleep(0.001)
        if self.open >= self.most:
            await asyncio.sleep(self.seconds)
            raise ConnectionFailed("refused")
        connection = HttpConnection()
        self.transports.append(FakeTransport(connection))
        return connection


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    pool = Pool(ClusterConfig(server="http://api"))
    pool.enter()
    yield pool
    await pool.leave()


def behind(pool: Pool, most: int, *, seconds: float = 0.0) -> Balancer:
    balancer = Balancer(most, seconds=seconds)
    pool.dialer.dial = balancer.dial  # type: ignore[method-assign]
    return balancer


async def use(pool: Pool, request: Request, seconds: float) -> float:
    """Hold a connection for a while; return how long the request waited for it."""
    began = loop_time()
    connection = await pool.acquire(request)
    waited = loop_time() - began
    try:
        await asyncio.sleep(seconds)
    finally:
        pool.release(connection)
    return waited


async def write(pool: Pool, seconds: float) -> float | None:
    """As `use`; None if it failed."""
    try:
        return await use(pool, WRITE, seconds)
    except ConnectionFailed:
        return None


@pytest.mark.parametrize("seed", range(40))
async def test_every_request_ends_however_few_connections_are_allowed(
    pool: Pool, seed: int
) -> None:
    """Also if requests are cancelled and connections end. The Lease waits for one other request at most."""
    random = Random(seed)
    balancer = behind(
        pool,
        random.randint(4, 12),
        seconds=random.choice((0.0, 5.0)),
    )
    async with asyncio.TaskGroup() as first:
        first.create_task(pool.acquire(WATCH))
        first.create_task(pool.acquire(WATCH))
        first.create_task(use(pool, LEASE, 0.01))
    async with asyncio.TaskGroup() as group:
        writes = [group.create_task(write(pool, random.uniform(0, 2))) for _ in range(60)]
        for _ in range(30):
            await asyncio.sleep(random.uniform(0, 2))
            assert await use(pool, LEASE, 0.01) <= 2.0
            if random.random() < 0.3:
                random.choice(writes).cancel()
            if random.random() < 0.3:
                random.choice(balancer.transports).abort()
        done, waiting = await asyncio.wait(writes, timeout=200)
        assert not waiting
        failed = [task for task in done if not task.cancelled() and task.result() is None]
        assert len(failed) < 30, "only if the last connection ends while another is refused"
    assert balancer.open <= balancer.most


async def test_leases_then_watches_then_others_get_the_next_free_connection(pool: Pool) -> None:
    behind(pool, 1)
    served: list[str] = []

    async def serve(name: str, request: Request) -> None:
        await use(pool, request, 1.0)
        served.append(name)

    with capture_logs() as logs:
        first = asyncio.create_task(serve("first", WRITE))
        await asyncio.sleep(0.1)
        other = asyncio.create_task(serve("other", WRITE))
        watch = asyncio.create_task(serve("watch", WATCH))
        lease = asyncio.create_task(serve("lease", LEASE))
        await asyncio.wait([first, other, watch, lease])
    assert served == ["first", "lease", "watch"]
    assert str(other.exception()) == "refused", "a watch never frees its connection"
    (line,) = logs
    assert (line["open"], line["error"]) == (1, "refused")


async def test_namespaces_get_connections_in_turns(pool: Pool) -> None:
    """One namespace holds all connections, and more of its requests wait before those of the others."""
    behind(pool, 2)
    served: list[str] = []

    async def serve(namespace: str) -> None:
        request = Request("PATCH", f"/api/v1/namespaces/{namespace}/pods/p/status")
        await use(pool, request, 10.0)
        served.append(namespace)

    async with asyncio.TaskGroup() as group:
        for namespace, requests in (("slow", 8), ("a", 2), ("b", 3)):
            for _ in range(requests):
                group.create_task(serve(namespace))
            await asyncio.sleep(1)
    assert served[:2] == ["slow", "slow"]
    assert sorted(served[2:5]) == ["a", "b", "slow"]
    assert sorted(served[5:8]) == ["a", "b", "slow"]
    assert sorted(served[8:11]) == ["b", "slow", "slow"]


async def test_attempts_to_open_a_further_connection_become_rare(pool: Pool) -> None:
    balancer = behind(pool, 1)
    async with asyncio.TaskGroup() as group:
        for _ in range(100):
            group.create_task(use(pool, WRITE, 1.0))
    attempts = [round(at) for at in balancer.dials]
    assert attempts == [0, *[0] * MAX_DIALS, 1, 3, 7, 15, 31, 61, 91]


async def test_without_any_connection_the_reason_is_raised_at_once(pool: Pool) -> None:
    behind(pool, 0, seconds=5.0)
    requests = [asyncio.create_task(pool.acquire(WRITE)) for _ in range(20)]
    await asyncio.wait(requests, timeout=6)
    failures = [repr(request.exception()) for request in requests]
    assert failures == ["ConnectionFailed('refused')"] * 20


PAUSED = Growth()
PAUSED.failed(0.0, 0.0)


@cases(
    "growth now turn tried dialing busy may",
    the_first=(Growth(), 0.0, Turn.OTHER, False, 0, 5, True),
    too_many_at_once=(Growth(), 0.0, Turn.OTHER, False, MAX_DIALS, 5, False),
    a_watch_at_any_time=(Growth(), 0.0, Turn.STREAM, False, MAX_DIALS, 5, True),
    a_write_waits_in_the_pause=(PAUSED, 0.5, Turn.OTHER, False, 0, 1, False),
    nothing_to_wait_for=(PAUSED, 0.5, Turn.OTHER, False, 0, 0, True),
    a_watch_tries_once_in_the_pause=(PAUSED, 0.5, Turn.STREAM, True, 0, 1, False),
    one_attempt_after_the_pause=(PAUSED, 1.0, Turn.OTHER, True, 0, 1, True),
    not_two=(PAUSED, 1.0, Turn.OTHER, True, 1, 1, False),
)
def test_when_a_request_may_open_a_connection(
    growth: Growth,
    now: float,
    turn: Turn,
    tried: bool,
    dialing: int,
    busy: int,
    may: bool,
) -> None:
    found = growth.may_dial(
        now,
        turn,
        tried=tried,
        dialing=dialing,
        busy=busy,
    )
    assert found == may


def test_a_tenant_causes_one_new_connection_a_second_and_all_servers_fewer() -> None:
    tenant = GivingUp()
    decisions = [tenant.closing(at / 10, worked=True, may_be_at_fault=True) for at in range(31)]
    assert decisions.count(Closing.THIS) == 4

    closing = partial(GivingUp().closing, may_be_at_fault=False)
    assert closing(0.0, worked=True) is Closing.THIS_AND_OLDER
    decisions = [closing(float(at), worked=False) for at in range(100)]
    closed_at = [at for at, decision in enumerate(decisions) if decision is Closing.THIS]
    assert closed_at == [0, 1, 3, 7, 15, 31, 47, 63, 79, 95]
    assert closing(99.0, worked=True) is Closing.THIS_AND_OLDER


@cases(
    "sent older",
    of_a_read=(READ, True),
    of_a_lease=(LEASE, True),
    of_a_write=(WRITE, False),
)
async def test_a_5xx_closes_its_connection_and_older_ones_unless_a_tenant_may_cause_it(
    pool: Pool, sent: Request, older: bool
) -> None:
    behind(pool, 9)
    connections = [await pool.acquire(READ) for _ in range(3)]
    for connection in connections:
        connection.worked = True
    idle, failed, busy = connections
    pool.release(idle)
    assert pool.give_up(failed, sent)
    pool.release(failed)
    pool.release(busy)
    assert not failed.usable
    assert idle.usable == busy.usable == (not older)
