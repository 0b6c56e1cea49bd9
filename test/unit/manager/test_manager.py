"""The manager on virtual time: what it runs, in which order, and how it ends."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self, cast

import pytest
from support.cases import cases
from support.fake_leases import LEASE, FakeElectionClient, FakeLeases
from support.fake_source import FakeSource, RecordingHandler, raising
from support.wire import Json

from kruise_probe.api.core import LEASES, NODES, Node
from kruise_probe.api.errors import ConnectionFailed, FatalError
from kruise_probe.client.config import ClusterConfig
from kruise_probe.informers.shared_informer import SharedInformer
from kruise_probe.manager.leader_election import LeaderElection
from kruise_probe.manager.manager import Manager
from kruise_probe.serving.health import Checks

ELECTION = LeaderElection("kruise-system", "manager", "me")


class Part:
    """A runnable that records its start and its end, and fails on request."""

    def __init__(
        self,
        name: str,
        journal: list[str],
        *,
        ends_after: float | None = None,
        error: Exception | None = None,
    ) -> None:
        self.name = name
        self._journal = journal
        self._ends_after = ends_after
        self._error = error

    async def run(self) -> None:
        self._journal.append(f"+{self.name}")
        try:
            await asyncio.sleep(10**6 if self._ends_after is None else self._ends_after)
            if self._error is not None:
                raise self._error
        finally:
            self._journal.append(f"-{self.name}")


class CachePart(Part):
    """An informer that syncs after a second, or never."""

    has_synced = False
    last_error = "connection refused"
    syncs = True

    async def wait_for_sync(self) -> None:
        await asyncio.sleep(1 if self.syncs else 10**6)
        self.has_synced = True
        self._journal.append(f"synced {self.name}")

    async def resync(self) -> None:
        self._journal.append(f"resynced {self.name}")


class LeaseClient(FakeElectionClient):
    """A client of the manager, for leases only."""

    entered = 0

    async def __aenter__(self) -> Self:
        self.entered += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        self.entered -= 1


def manager_of(source: FakeSource[Any] | None = None, **options: Any) -> Manager:
    return Manager(
        ClusterConfig(server="http://127.0.0.1:1"),
        name="operator",
        ready=Checks(),
        source=lambda *_: source or FakeSource(),
        **options,
    )


class Parts:
    """A manager of one service, one cache and one controller, with an election whose Lease another one may hold."""

    def __init__(self, *, elects: bool = True) -> None:
        self.journal: list[str] = []
        self.leases = FakeLeases()
        self.cache = CachePart("pods", self.journal)
        self.manager = manager_of(
            new_client=lambda **_: LeaseClient(self.leases),
            leader_election=ELECTION if elects else None,
        )
        self.manager.services = [Part("webhook", self.journal)]
        self.manager.controllers = [Part("nodes", self.journal)]
        self.manager.informers.append(cast(SharedInformer[Any], self.cache))


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
        assert task.cancelled() or not task.exception()


@cases("elects", elected=True, without_election=False)
async def test_parts_start_in_order_and_stop_in_reverse_in_no_time(
    looptime: float, elects: bool
) -> None:
    parts = Parts(elects=elects)
    async with running(parts.manager, for_seconds=10):
        assert parts.leases.holder == ("me" if elects else "")
        assert parts.journal == ["+webhook", "+pods", "synced pods", "resynced pods", "+nodes"]
    assert looptime < 10.1
    assert parts.journal[5] == "-nodes"
    assert sorted(parts.journal[6:]) == ["-pods", "-webhook"]
    assert parts.leases.holder == ""


async def test_d7_a_standby_has_warm_caches_and_no_controllers() -> None:
    parts = Parts()
    other = Parts()
    other.manager = manager_of(
        new_client=lambda **_: LeaseClient(parts.leases),
        leader_election=ELECTION._replace(identity="other"),
    )
    async with running(other.manager, for_seconds=5), running(parts.manager, for_seconds=900):
        assert "synced pods" in parts.journal
        assert "+nodes" not in parts.journal


async def test_a_stop_before_caches_have_synced_is_clean() -> None:
    parts = Parts()
    parts.cache.syncs = False
    async with running(parts.manager, for_seconds=5):
        pass
    assert parts.journal[:2] == ["+webhook", "+pods"]
    assert sorted(parts.journal[2:]) == ["-pods", "-webhook"]


TAKEN = OSError("port taken")
SILENT = TimeoutError()
MANY = ExceptionGroup("many", [OSError("first\nline"), OSError("second")])


@cases(
    "group ends_after error message",
    a_service_fails_before_the_caches_sync=("services", 0, TAKEN, "failed: port taken"),
    a_service_ends=("services", 50, None, "ended"),
    a_controller_ends=("controllers", 50, None, "ended"),
    a_controller_fails=("controllers", 50, KeyError("x"), "failed: 'x'"),
    a_controller_fails_without_a_message=("controllers", 50, SILENT, "failed: TimeoutError"),
    a_group_of_errors_is_reported_by_its_first_line=("services", 5, MANY, "failed: first"),
)
@cases("elects", elected=True, without_election=False)
async def test_c1_the_end_of_a_core_task_ends_the_manager_with_one_line(
    group: str,
    ends_after: float,
    error: Exception | None,
    message: str,
    elects: bool,
) -> None:
    parts = Parts(elects=elects)
    other = Part(
        "other",
        parts.journal,
        ends_after=ends_after,
        error=error,
    )
    setattr(parts.manager, group, [other])
    with pytest.raises(FatalError) as raised:
        await parts.manager.start()
    assert str(raised.value) == f"other {message}"
    started = [line[1:] for line in parts.journal if line.startswith("+")]
    stopped = [line[1:] for line in parts.journal if line.startswith("-")]
    assert sorted(started) == sorted(stopped)
    assert parts.leases.holder == ""


async def test_c1_a_lost_lease_ends_the_manager_with_one_line() -> None:
    parts = Parts()
    running = asyncio.create_task(parts.manager.start())
    await asyncio.sleep(5)
    thief = {"spec": {"holderIdentity": "thief"}}
    parts.leases.edit(
        LEASES,
        LEASE[0],
        thief,
        namespace=LEASE[1],
    )
    with pytest.raises(FatalError, match=r"^lease kruise-system/manager: thief holds it now$"):
        await running
    assert "-nodes" in parts.journal


async def test_caches_that_do_not_sync_in_time_end_the_manager(looptime: float) -> None:
    parts = Parts()
    parts.cache.syncs = False
    with pytest.raises(FatalError, match=r"within 120 s: pods \(connection refused\)\. Check"):
        await parts.manager.start()
    assert looptime == 120


async def test_a_source_that_refuses_is_the_reason_why_caches_do_not_sync() -> None:
    source = FakeSource[Any]()
    source.on_watch = source.on_list = raising(ConnectionFailed("refused"))
    manager = manager_of(source, cache_sync_timeout_seconds=7.0)
    manager.add_informer(LEASES)
    with pytest.raises(FatalError, match=r"within 7 s: leases \(refused\)"):
        await manager.start()


async def test_clients_have_the_options_of_the_manager_and_only_one_is_fenced() -> None:
    """Both are open while the manager runs."""
    made: list[Json] = []
    clients: list[LeaseClient] = []

    def new_client(**given: Any) -> LeaseClient:
        made.append({"before_send": None} | given)
        clients.append(LeaseClient(FakeLeases()))
        return clients[-1]

    options: Json = {"user_agent": "u/1", "qps": 5.0, "burst": 9}
    manager = manager_of(new_client=new_client, leader_election=ELECTION, **options)
    expected = options | {"field_manager": "operator"}
    assert all(given.items() >= expected.items() for given in made)
    assert manager.elector
    assert [given["before_send"] for given in made] == [None, manager.elector.check]
    async with running(manager):
        assert [client.entered for client in clients] == [1, 1, 1]
    assert [client.entered for client in clients] == [0, 0, 0]


@cases(
    "options resyncs",
    once_by_default=({}, 1),
    set=({"resync_seconds": 30.0}, 4),
)
async def test_objects_are_enqueued_when_it_leads_and_at_the_interval_of_resyncs(
    options: dict[str, float], resyncs: int
) -> None:
    source = FakeSource[Node]()
    source.put(Node("n"))
    manager = manager_of(source, **options)
    recorder = RecordingHandler()
    manager.add_informer(NODES).add_event_handler(recorder)
    async with running(manager, for_seconds=100):
        assert recorder.calls == ["initial n"] + ["resync n"] * resyncs
        assert len(await manager.ready.run()) == 2, "synced, and active"
