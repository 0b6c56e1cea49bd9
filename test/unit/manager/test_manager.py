"""The options of a manager: its clients, informers and Lease."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self

import pytest
from support.fake_leases import FakeElectionClient, FakeLeases
from support.fake_source import FakeSource

from kruise_probe.api.core import LEASES, NODES, Node
from kruise_probe.api.errors import ConnectionFailed, FatalError
from kruise_probe.api.meta import ObjectMeta
from kruise_probe.client.config import ClusterConfig
from kruise_probe.client.rest import RestClient
from kruise_probe.manager.leader_election import LeaderElection
from kruise_probe.manager.manager import Manager
from kruise_probe.serving.health import Checks

ELECTION = LeaderElection("kruise-system", "lock", "me")


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
    return Manager(
        ClusterConfig.plain("http://127.0.0.1:1"),
        name="operator",
        ready=Checks(),
        source=lambda *_: source or FakeSource(),
        **options,
    )


async def test_clients_have_the_options_of_the_manager_and_only_one_is_fenced() -> None:
    made: list[dict[str, Any]] = []

    def new_client(**given: Any) -> RestClient:
        made.append({"before_send": None} | given)
        return RestClient(**given)

    manager = manager_of(
        new_client=new_client, leader_election=ELECTION, user_agent="u/1", qps=5.0, burst=9
    )
    for each in made:
        assert (each["field_manager"], each["user_agent"]) == ("operator", "u/1")
        assert (each["qps"], each["burst"]) == (5.0, 9)
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
    manager.add_informer(NODES).add_event_handler(recorder)
    async with running(manager, for_seconds=100):
        assert recorder.updates == resyncs
        assert len((await manager.ready.report()).results) == 2, "synced, and active"


async def test_caches_that_do_not_sync_in_time_end_the_manager(looptime: float) -> None:
    source: FakeSource[Any] = FakeSource()

    def refuse() -> None:
        raise ConnectionFailed("refused")

    source.on_watch = refuse
    manager = manager_of(source, cache_sync_timeout_seconds=7.0)
    manager.add_informer(LEASES)
    with pytest.raises(FatalError, match="within 7 s: leases"):
        await manager.start()
    assert looptime == 7
