"""The supervisor's guards: what it refuses, what it survives, and how long it keeps results."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from structlog.testing import capture_logs
from support.scripted_node import (
    BAD,
    FakeContainers,
    FakeHostAddresses,
    FakeProbers,
    exec_probe,
    pod_of,
    probe_of,
    settle,
    spec_of,
    wall_clock,
)

from kruise_probe.api.meta import ObjectMeta
from kruise_probe.api.v1alpha1 import (
    ContainerProbe,
    ContainerProbeState,
    NodePodProbe,
    NodePodProbeStatus,
    PodProbeStatus,
)
from kruise_probe.daemon import metrics
from kruise_probe.daemon.places import EXECS, SOCKETS, Places
from kruise_probe.daemon.probers.prober import Prober
from kruise_probe.daemon.results import Results
from kruise_probe.daemon.supervisor import Supervisor
from kruise_probe.daemon.worker import WorkerContext


class Supervised:
    """A supervisor with one running container."""

    def __init__(self) -> None:
        self.containers = FakeContainers()
        self.probers = FakeProbers()
        self.results = Results()
        self.broken: set[str] = set()
        self.wall_seconds_ahead = 0.0
        self.supervisor = Supervisor(
            WorkerContext(
                containers=self.containers,
                node_addresses=FakeHostAddresses(),
                prober_factory=self._prober,
                execs=Places(16, EXECS),
                sockets=Places(16, SOCKETS),
                results=self.results,
                stalled_since=lambda _: False,
                now=lambda: wall_clock() + timedelta(seconds=self.wall_seconds_ahead),
            )
        )
        self.container_id = self.containers.start(age=100)

    def _prober(self, entry: ContainerProbe) -> Prober:
        assert entry.probe.exec is not None
        assert entry.probe.exec.command is not None
        if entry.probe.exec.command[0] in self.broken:
            raise RuntimeError("broken")
        return self.probers(entry)

    def apply(
        self, *commands: str, first: bool = False, status: NodePodProbeStatus | None = None
    ) -> None:
        probes = [probe_of(exec_probe(each, period_seconds=10), f"m#{each}") for each in commands]
        self.supervisor.apply(
            NodePodProbe(
                ObjectMeta("node-1"), spec_of(pod_of(*probes)), status or NodePodProbeStatus()
            ),
            first=first,
        )

    @property
    def states(self) -> dict[str, str]:
        return {str(key.probe): str(each.state) for key, each in self.results.newest.items()}


@asynccontextmanager
async def supervised() -> AsyncIterator[Supervised]:
    made = Supervised()
    task = asyncio.create_task(made.supervisor.run())
    await made.supervisor.wait_until_running()
    try:
        yield made
    finally:
        task.cancel()
        await asyncio.wait([task])


@pytest.mark.parametrize(
    ("suspended_seconds", "at_once"),
    [
        pytest.param(3600.0, True, id="longer-than-its-period"),
        pytest.param(9.0, False, id="shorter"),
        pytest.param(-3600.0, False, id="clock-set-back"),
    ],
)
async def test_probe_runs_at_once_after_a_suspend(suspended_seconds: float, at_once: bool) -> None:
    async with supervised() as made:
        made.apply("a")
        await asyncio.sleep(20.5)
        await asyncio.sleep(made.probers.times[-1] + 2 - asyncio.get_running_loop().time())
        before = len(made.probers.times)
        made.wall_seconds_ahead = suspended_seconds
        await asyncio.sleep(1.5)
        assert len(made.probers.times) - before == at_once


async def test_nothing_is_probed_before_it_runs() -> None:
    made = Supervised()
    with capture_logs() as logs:
        made.apply("a")
    await asyncio.sleep(60)

    assert not made.probers.attempts
    assert [entry["event"] for entry in logs] == ["probe could not be set up"]


async def test_a_probe_that_cannot_be_set_up_stops_no_other_and_is_counted() -> None:
    errors = metrics.WORKER_ERRORS._value.get()
    async with supervised() as made:
        made.broken.add("bad")
        with capture_logs() as logs:
            made.apply("bad", "good")
        await asyncio.sleep(20)
        assert made.states == {"m#good": "Succeeded"}
        assert [entry["probe"] for entry in logs] == ["m#bad"]
        assert metrics.WORKER_ERRORS._value.get() == errors + 1


async def test_a_probe_that_could_not_be_set_up_is_added_by_its_next_edit() -> None:
    async with supervised() as made:
        made.broken.add("bad")
        made.apply("bad")
        made.broken.clear()
        edited = probe_of(exec_probe("mended", period_seconds=10), "m#bad")
        made.supervisor.apply(NodePodProbe(ObjectMeta("node-1"), spec_of(pod_of(edited))))
        await asyncio.sleep(20)
        assert made.states == {"m#bad": "Succeeded"}


async def test_a_removed_probe_ends_and_loses_its_result() -> None:
    async with supervised() as made:
        made.apply("a", "b")
        await asyncio.sleep(20)
        made.apply("b")
        attempts = len(made.probers.attempts)
        await asyncio.sleep(35)
        assert made.states == {"m#b": "Succeeded"}
        assert len(list(made.supervisor.series)) == 1
        assert len(made.probers.attempts) - attempts <= 4
        assert made.containers.subscriptions == 1


@pytest.mark.parametrize(
    ("away_seconds", "known"),
    [
        pytest.param(59, True, id="soon"),
        pytest.param(61, False, id="late"),
    ],
)
async def test_results_of_a_deleted_object_are_kept_for_a_minute(
    away_seconds: float, known: bool
) -> None:
    """A known state is published again at once, and waits for the phase of its probe."""
    async with supervised() as made:
        made.apply("a")
        await asyncio.sleep(20)
        made.supervisor.apply(None)
        assert made.states == {}
        made.probers.answer(BAD)
        await asyncio.sleep(away_seconds)
        made.containers.set_available(False)
        made.apply("a")
        await settle()
        made.containers.set_available(True)
        await settle()
        assert (made.states.get("m#a") == "Succeeded") == known


@pytest.mark.parametrize("state", ["Succeeded", "Failed", "Unknown"])
@pytest.mark.parametrize("first", [True, False])
async def test_a_status_is_read_back_only_from_the_object_that_existed_at_the_start(
    state: str, first: bool
) -> None:
    async with supervised() as made:
        recorded = ContainerProbeState(
            "m#a", state, message="from before", container_id=made.container_id
        )
        status = NodePodProbeStatus((PodProbeStatus("pod", "default", "uid-pod", (recorded,)),))
        made.probers.answer(BAD, seconds=5)
        made.apply("a", first=first, status=status)
        await settle()
        assert made.states == ({"m#a": state} if first else {})


async def test_a_probe_that_could_not_be_set_up_can_be_removed() -> None:
    async with supervised() as made:
        made.broken.add("bad")
        made.apply("bad", "good")
        made.apply("good")
        await asyncio.sleep(20)
        assert made.states == {"m#good": "Succeeded"}
        assert len(list(made.supervisor.series)) == 1


async def test_an_edit_changes_the_running_worker() -> None:
    async with supervised() as made:
        made.apply("old")
        await asyncio.sleep(20)
        edited = probe_of(exec_probe("new", period_seconds=10), "m#old")
        made.supervisor.apply(NodePodProbe(ObjectMeta("node-1"), spec_of(pod_of(edited))))
        before = len(made.probers.attempts)
        await asyncio.sleep(35)
        commands = {
            each.probe.exec and each.probe.exec.command for each in made.probers.attempts[before:]
        }
        assert commands == {("new",)}
        assert made.states == {"m#old": "Succeeded"}
        assert (len(list(made.supervisor.series)), made.containers.subscriptions) == (1, 1)
