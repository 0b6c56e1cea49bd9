"""What a manager accepts before and after its start, and the defaults of its options."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self

import pytest
from support.fake_leases import FakeElectionClient, FakeLeases
from support.fake_source import FakeSource

from kruise_probe.api.core import LEASES
from kruise_probe.api.errors import ConnectionFailed, FatalError
from kruise_probe.client.rest import RestClient
from kruise_probe.runtime import (
    Builder,
    ClusterConfig,
    LeaderElection,
    Manager,
    NamespacedName,
    Node,
    ObjectMeta,
)


class Service:
    async def run(self) -> None:
        await asyncio.Event().wait()


async def ignore(key: NamespacedName) -> None:
    pass


@pytest.fixture
async def started() -> AsyncIterator[Manager]:
    manager = Manager(
        ClusterConfig.plain("http://127.0.0.1:1"),
        name="test",
        source=lambda resource, namespace: FakeSource[Any](),
    )
    manager.cache(Node)
    running = asyncio.create_task(manager.start())
    await asyncio.sleep(1)
    yield manager
    running.cancel()
    await asyncio.wait({running})


async def test_kinds_that_were_added_before_the_start_can_be_read_after_it(
    started: Manager,
) -> None:
    assert started.cache(Node).list() == []
    assert started.cache(Node) is started.cache(Node)
    assert started.informer(Node) in started.informers
    assert len((await started.ready.report()).results) == 2, "synced, and active"


async def test_what_would_never_run_is_refused_after_the_start(started: Manager) -> None:
    with pytest.raises(RuntimeError, match="informer of leases: the manager has started"):
        started.cache(LEASES)
    with pytest.raises(RuntimeError, match="controller: the manager has started"):
        Builder(started).named("late").complete(ignore)
    with pytest.raises(RuntimeError, match="service: the manager has started"):
        started.add_service(Service())


@asynccontextmanager
async def running(manager: Manager, *, for_seconds: float = 1) -> AsyncIterator[None]:
    """Runs the manager for so long, then the body, then cancels it."""
    task = asyncio.create_task(manager.start())
    await asyncio.sleep(for_seconds)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


def manager_of(source: FakeSource[Any] | None = None, **options: Any) -> Manager:
    config = ClusterConfig.plain("http://127.0.0.1:1")
    return Manager(config, name="operator", source=lambda *_: source or FakeSource(), **options)


@pytest.mark.parametrize(
    ("options", "user_agent", "qps", "burst"),
    [
        pytest.param({}, "operator", 0.0, 0, id="defaults"),
        pytest.param({"user_agent": "u/1", "qps": 5.0, "burst": 9}, "u/1", 5.0, 9, id="options"),
    ],
)
async def test_clients_have_the_options_of_the_manager(
    options: dict[str, Any], user_agent: str, qps: float, burst: int
) -> None:
    made: list[dict[str, Any]] = []

    def new_client(**given: Any) -> RestClient:
        made.append({"before_send": None} | given)
        return RestClient(**given)

    manager = manager_of(new_client=new_client, leader_election=True, **options)
    for each in made:
        assert (each["field_manager"], each["user_agent"]) == ("operator", user_agent)
        assert (each["qps"], each["burst"]) == (qps, burst)
    assert manager.elector
    assert [each["before_send"] for each in made] == [None, manager.elector.check]


class LeaseClient(FakeElectionClient):
    """A client of the manager, for leases only."""

    entered = 0

    async def __aenter__(self) -> Self:
        self.entered += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        self.entered -= 1


@pytest.mark.parametrize(
    ("namespace", "election", "lease"),
    [
        pytest.param("", True, NamespacedName("default", "operator"), id="of-the-configuration"),
        pytest.param("team", True, NamespacedName("team", "operator"), id="of-the-manager"),
        pytest.param(
            "team", LeaderElection("own", "lock"), NamespacedName("own", "lock"), id="options"
        ),
    ],
)
async def test_the_lease_has_the_name_and_namespace_of_the_manager_by_default(
    namespace: str, election: bool | LeaderElection, lease: NamespacedName
) -> None:
    leases = FakeLeases()
    manager = manager_of(
        namespace=namespace,
        leader_election=election,
        hostname="host-1",
        new_client=lambda **_: LeaseClient(leases),
    )
    async with running(manager):
        assert leases.stored
        metadata = leases.stored["metadata"]
        assert NamespacedName(metadata["namespace"], metadata["name"]) == lease
        assert leases.holder.startswith(f"host-1_{os.getpid()}_")
        assert len(leases.holder.rpartition("_")[2]) == 8


async def test_the_identity_of_the_lease_may_be_set() -> None:
    leases = FakeLeases()
    manager = manager_of(
        leader_election=LeaderElection(identity="me"), new_client=lambda **_: LeaseClient(leases)
    )
    async with running(manager):
        assert leases.holder == "me"


async def test_both_clients_are_open_while_the_manager_runs() -> None:
    clients: list[LeaseClient] = []

    def new_client(**_: object) -> LeaseClient:
        clients.append(LeaseClient(FakeLeases()))
        return clients[-1]

    manager = manager_of(new_client=new_client)
    async with running(manager):
        assert [each.entered for each in clients] == [1, 1]
    assert [each.entered for each in clients] == [0, 0]


class Recorder:
    """An event handler that counts updates, which resyncs are too."""

    def __init__(self) -> None:
        self.updates = 0

    def on_add(self, obj: object, is_initial: bool) -> None:
        pass

    def on_update(self, old: object, new: object) -> None:
        self.updates += 1

    def on_delete(self, last_known: object) -> None:
        pass


@pytest.mark.parametrize(
    ("options", "resyncs"),
    [
        pytest.param({}, 0, id="never-by-default"),
        pytest.param({"resync_seconds": 30.0}, 3, id="set"),
    ],
)
async def test_objects_are_enqueued_again_at_the_interval_of_resyncs(
    options: dict[str, float], resyncs: int
) -> None:
    source: FakeSource[Node] = FakeSource()
    source.put(Node(ObjectMeta("n")))
    manager = manager_of(source, **options)
    recorder = Recorder()
    manager.informer(Node).add_event_handler(recorder)
    async with running(manager, for_seconds=100):
        assert recorder.updates == resyncs


@pytest.mark.parametrize(
    ("options", "seconds"),
    [
        pytest.param({}, 120, id="default"),
        pytest.param({"cache_sync_timeout_seconds": 7.0}, 7, id="set"),
    ],
)
async def test_caches_that_do_not_sync_in_time_end_the_manager(
    options: dict[str, float], seconds: float, looptime: float
) -> None:
    source: FakeSource[Any] = FakeSource()

    def refuse() -> None:
        raise ConnectionFailed("refused")

    source.on_watch = refuse
    manager = manager_of(source, **options)
    manager.cache(Node)
    with pytest.raises(FatalError, match=f"within {seconds} s: nodes"):
        await manager.start()
    assert looptime == seconds


async def test_the_cache_shows_the_newer_of_our_write_and_its_event() -> None:
    source: FakeSource[Node] = FakeSource()
    manager = manager_of(source)
    nodes = manager.cache(Node)
    key = NamespacedName("", "n")
    async with running(manager):
        first = source.put(Node(ObjectMeta("n", uid="u")))
        await asyncio.sleep(1)
        written = Node(ObjectMeta("n", uid="u", resource_version="90"))
        nodes.record_write(written)
        assert nodes.get(key) is written
        source.delete(key)
        await asyncio.sleep(1)
        nodes.record_write(first)
        assert nodes.get(key) is None, "a late response to a write is ignored"


async def test_the_event_of_our_own_write_is_recognised_once() -> None:
    source: FakeSource[Node] = FakeSource()
    manager = manager_of(source)
    nodes = manager.cache(Node)
    async with running(manager):
        for version in ("11", "12"):  # the first one is added, the second one updated
            written = Node(ObjectMeta("n", uid="u", resource_version=version))
            nodes.record_write(written)
            assert nodes.is_own_write(written)
            assert source.put(written) == written
            await asyncio.sleep(1)
            assert not nodes.is_own_write(written)


async def test_the_cache_shows_what_the_client_has_written() -> None:
    class Server:
        async def create(self, *_: object, **__: object) -> Node:
            return Node(ObjectMeta("n", uid="u", resource_version="50"))

    manager = manager_of(new_client=lambda **_: Server())
    nodes = manager.cache(Node)
    created = await manager.client.create(Node(ObjectMeta("n")))
    assert nodes.get(created.key) is created


@pytest.mark.parametrize(
    ("namespace", "of_informer"),
    [pytest.param(None, "team", id="of-the-manager"), pytest.param("other", "other", id="given")],
)
def test_an_informer_watches_the_namespace_of_the_manager_unless_another_is_given(
    namespace: str | None, of_informer: str
) -> None:
    requested: list[tuple[str, str]] = []

    def source(resource: Any, namespace: str) -> FakeSource[Any]:
        requested.append((resource.plural, namespace))
        return FakeSource()

    config = ClusterConfig.plain("http://127.0.0.1:1")
    manager = Manager(config, name="operator", namespace="team", source=source)
    informers = [manager.informer(LEASES, namespace), manager.informer(Node, namespace)]
    assert requested == [("leases", of_informer), ("nodes", "")]
    assert manager.informer(LEASES, namespace) is informers[0]
    assert list(manager.informers) == informers


async def get(port: int, path: str) -> str:
    """The response to a request, as text."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n".encode())
    response = await reader.read()
    writer.close()
    await writer.wait_closed()
    return response.decode()


@pytest.mark.sockets
async def test_health_and_metrics_are_served_at_their_addresses() -> None:
    manager = manager_of(health_addr="127.0.0.1:0", metrics_addr="127.0.0.1:0")
    async with running(manager, for_seconds=0):
        health, metrics = (each.port for each in manager.servers)
        assert "loop" in await get(health, "/healthz?verbose")
        assert "loop" in await get(health, "/readyz?verbose")
        assert "404" in await get(health, "/metrics")
        assert "leader_election_master_status" in await get(metrics, "/metrics")


async def test_without_addresses_nothing_is_served() -> None:
    manager = manager_of()
    async with running(manager):
        assert not manager.servers
        assert not (await manager.health.report()).results
