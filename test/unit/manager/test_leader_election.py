"""Leader election on virtual time, with the network and the processes under the test's control."""

import asyncio
import itertools
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple
from unittest.mock import ANY

import looptime
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from prometheus_client import REGISTRY
from structlog.testing import capture_logs
from support.fake_leases import LEASE, FakeElectionClient, FakeLeases
from support.wire import Json

from kruise_probe.api.errors import ConnectionFailed
from kruise_probe.api.resources import LEASES
from kruise_probe.api.times import loop_time, utc_now
from kruise_probe.manager.leader_election import (
    LeaderElection,
    LeaderElector,
    LeadershipLost,
    NotLeader,
)


class Durations(NamedTuple):
    """Seconds."""

    lease: float
    renew_deadline: float
    retry_period: float


DEFAULT_DURATIONS = Durations(15.0, 10.0, 2.0)


class Process:
    """One candidate process: its elector, its link, its (skewed) wall clock and how its run ended."""

    def __init__(
        self,
        leases: FakeLeases,
        name: str,
        *,
        skew: timedelta = timedelta(),
        durations: Durations = DEFAULT_DURATIONS,
    ) -> None:
        self.link = FakeElectionClient(leases)
        self.name = name
        self.led = 0
        self.ended: list[str] = []
        self.reason = ""
        self.drain_seconds = 0.0
        client: Any = self.link
        self.elector = LeaderElector(
            lambda: client,
            LeaderElection(
                "kruise-system",
                "manager",
                name,
                *durations,
            ),
            now=lambda: utc_now() + skew,
        )
        self.task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.task = asyncio.create_task(self._run(), name=self.name)

    async def _run(self) -> None:
        try:
            await self.elector.run(self._lead)
        except LeadershipLost as lost:
            self.ended.append("lost")
            self.reason = str(lost)
        except asyncio.CancelledError:
            self.ended.append("stopped")
            raise

    async def _lead(self) -> None:
        self.led += 1
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await asyncio.sleep(self.drain_seconds)

    @property
    def leads(self) -> bool:
        try:
            self.elector.check()
        except NotLeader:
            return False
        return True

    async def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait({self.task})


async def until(condition: Callable[[], bool], *, within_seconds: float) -> float:
    """Waits for `condition`; returns the seconds that it took."""
    begun = loop_time()
    while not condition():
        assert loop_time() - begun < within_seconds, f"not within {within_seconds} s"
        await asyncio.sleep(0.05)
    return loop_time() - begun


class Election:
    """A Lease and its candidates.

    Attributes:
        leases: the server.
        processes: all candidates that were started.
    """

    def __init__(self) -> None:
        self.leases = FakeLeases()
        self.processes: list[Process] = []

    def add(self, name: str, **options: Any) -> Process:
        process = Process(self.leases, name, **options)
        self.processes.append(process)
        return process

    def start(self, name: str, **options: Any) -> Process:
        process = self.add(name, **options)
        process.start()
        return process

    async def leader(self) -> Process:
        """Start the process `one`, which leads."""
        one = self.start("one")
        await until(lambda: one.leads, within_seconds=1)
        return one

    async def leader_and_standby(self, *, after_seconds: float) -> tuple[Process, Process]:
        one = await self.leader()
        two = self.start("two")
        await asyncio.sleep(after_seconds)
        return one, two

    async def renewal(self, *, within_seconds: float) -> None:
        """Wait until a renewal is stored."""
        before = self.version
        await until(lambda: self.version > before, within_seconds=within_seconds)

    async def end(self) -> None:
        for process in self.processes:
            await process.stop()

    @property
    def version(self) -> int:
        """Of the Lease: one more with each write."""
        return int(self.leases.sources["leases"].resource_version)

    @property
    def stored(self) -> Json:
        assert self.leases.stored
        return self.leases.stored

    @property
    def spec(self) -> Json:
        return dict(self.stored["spec"])


@pytest.fixture
async def election() -> AsyncIterator[Election]:
    made = Election()
    yield made
    await made.end()


async def test_a_stopped_leader_releases_last_and_the_standby_leads_within_2_s(
    election: Election,
) -> None:
    one, two = await election.leader_and_standby(after_seconds=30)
    one.drain_seconds = 3.0
    stopping = asyncio.create_task(one.stop())
    await asyncio.sleep(2.9)
    assert election.leases.holder == "one"
    await stopping
    assert not one.leads
    assert await until(lambda: two.leads, within_seconds=2) < 2
    assert two.led == 1


async def test_a_leader_stopped_during_a_renewal_releases_the_lease(election: Election) -> None:
    """The server has applied the renewal; the candidate no longer waits for the response."""
    one, two = await election.leader_and_standby(after_seconds=10)
    one.link.latency_seconds = 0.2
    await election.renewal(within_seconds=3)
    await one.stop()
    assert await until(lambda: two.leads, within_seconds=2) < 2


async def test_the_lease_of_a_killed_leader_is_acquired_when_it_expires(election: Election) -> None:
    one, two = await election.leader_and_standby(after_seconds=30)
    one.link.reachable = False
    assert await until(lambda: two.leads, within_seconds=17) >= 13


async def test_a_leader_that_cannot_renew_stops_before_another_may_lead(election: Election) -> None:
    one = await election.leader()
    one.link.reachable = False
    assert 7.9 <= await until(lambda: not one.leads, within_seconds=11) <= 10.1
    await until(lambda: one.ended == ["lost"], within_seconds=1)
    assert election.leases.holder == "one"
    assert "kruise-system/manager: not renewed for 10 s" in one.reason


@pytest.mark.parametrize("latency_seconds", [0.001, 0.5, 1.0])
async def test_a_term_counts_from_the_sending_of_its_renewal(
    election: Election, latency_seconds: float
) -> None:
    """Not from its response: others count from when the server stored it, which is before the response arrives."""
    one = await election.leader()
    one.link.latency_seconds = latency_seconds
    await asyncio.sleep(20)
    await election.renewal(within_seconds=12)
    sent_at = loop_time() - latency_seconds
    await asyncio.sleep(latency_seconds + 0.1)
    one.link.reachable = False
    await until(lambda: not one.leads, within_seconds=11)
    assert 9.8 <= loop_time() - sent_at <= 10.1


async def test_a_lost_response_is_not_taken_for_another_leader(election: Election) -> None:
    """The renewal was stored, but its response was lost. The next renewal finds an unexpected version."""
    one = await election.leader()
    one.link.losing_answers = True
    await asyncio.sleep(2.5)
    one.link.losing_answers = False
    await asyncio.sleep(20)
    assert one.leads


async def test_a_lease_held_by_another_ends_the_leader_at_its_next_renewal(
    election: Election,
) -> None:
    one = await election.leader()
    thief = {"spec": {"holderIdentity": "thief"}}
    election.leases.edit(
        LEASES,
        LEASE[0],
        thief,
        namespace=LEASE[1],
    )
    assert await until(lambda: not one.leads, within_seconds=3) < 2.5
    await until(lambda: one.ended == ["lost"], within_seconds=1)
    assert election.leases.holder == "thief"
    assert one.reason == "lease kruise-system/manager: thief holds it now"


async def test_a_deleted_lease_makes_no_second_leader(election: Election) -> None:
    one, two = await election.leader_and_standby(after_seconds=5)
    election.leases.remove(LEASES, *LEASE)
    await asyncio.sleep(30)
    assert one.leads
    assert two.led == 0


async def test_a_leader_whose_lease_was_deleted_stops_at_once(
    election: Election, looptime: float
) -> None:
    one = election.start("one")
    await asyncio.sleep(1)
    election.leases.remove(LEASES, *LEASE)
    await one.stop()
    assert looptime < 1.1
    assert election.leases.stored is None


async def test_a_standby_with_a_working_watch_does_not_poll(election: Election) -> None:
    await election.leader()
    two = election.add("two")
    reads = 0
    get = two.link.get

    async def counted(*request: Any) -> object:
        nonlocal reads
        reads += 1
        return await get(*request)

    two.link.get = counted  # type: ignore[method-assign]  # the test listens in
    two.start()
    await asyncio.sleep(120)
    assert reads == 1
    await asyncio.sleep(190)
    assert reads == 2, "a watch ends after five minutes"


async def test_a_standby_without_a_watch_acquires_the_lease_in_time(election: Election) -> None:
    one, two = await election.leader_and_standby(after_seconds=5)
    two.link.reachable = False
    await one.stop()
    await asyncio.sleep(3)
    two.link.reachable = True
    await until(lambda: two.leads, within_seconds=17)


async def test_failed_attempts_are_repeated_once_per_retry_period(election: Election) -> None:
    """The same error again is logged at debug level."""
    requests = 0

    async def refuse(*_: object, **__: object) -> object:
        nonlocal requests
        requests += 1
        raise ConnectionFailed("refused")

    with capture_logs() as logs:
        one = election.start("one")
        one.link.create = one.link.get = refuse  # type: ignore[method-assign]  # a broken server
        await asyncio.sleep(60)
    assert 25 <= requests <= 60
    warned = [line["event"] for line in logs if line["log_level"] == "warning"]
    assert warned == ["lease not acquired"]
    assert {line["error"] for line in logs if "error" in line} == {"refused"}


@pytest.mark.parametrize("method", ["get", "create", "patch"])
async def test_a_request_without_response_is_repeated_after_half_the_renew_deadline(
    election: Election, method: str
) -> None:
    """That is 5 s, and the retry period of 2 s with its jitter."""
    times: list[float] = []

    async def hang(*_: object, **__: object) -> None:
        times.append(loop_time())
        await asyncio.get_running_loop().create_future()

    setattr(election.start("one").link, method, hang)
    await asyncio.sleep(9.5)
    assert 6.99 <= times[1] - times[0] <= 7.45


async def test_a_bookmark_is_no_deletion_of_the_lease(election: Election) -> None:
    _, two = await election.leader_and_standby(after_seconds=5)
    election.leases.sources["leases"].bookmark()
    await asyncio.sleep(0.1)
    assert two.elector._observed.resource_version == str(election.version)


async def test_a_lost_race_for_the_lease_is_no_warning(election: Election) -> None:
    with capture_logs() as logs:
        for name in ("one", "two", "three"):
            election.start(name)
        await asyncio.sleep(60)
    changes = [line["holder"] for line in logs if line["event"] == "leader changed"]
    assert all(line["log_level"] != "warning" for line in logs)
    assert len(changes) == 3, "each candidate logs the leader once"
    assert len(set(changes)) == 1


async def test_the_lease_has_the_record_that_other_clients_read(election: Election) -> None:
    """Renewals keep the time of the acquisition. Each new holder is one transition."""

    def record(holder: str, *, seconds: int = 15, transitions: int) -> Json:
        return {
            "holderIdentity": holder,
            "leaseDurationSeconds": seconds,
            "leaseTransitions": transitions,
            "acquireTime": ANY,
            "renewTime": ANY,
        }

    one = await election.leader()
    acquired = election.spec
    assert acquired == record("one", transitions=0)
    assert acquired["renewTime"] == acquired["acquireTime"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", acquired["acquireTime"])
    metadata = election.stored["metadata"]
    assert (metadata["name"], metadata["namespace"]) == LEASE

    two = election.start("two")
    await asyncio.sleep(30)
    renewed = election.spec
    assert election.version > 20
    assert renewed == acquired | {"renewTime": ANY}
    assert renewed["renewTime"] > acquired["renewTime"]

    await one.stop()
    await until(lambda: two.leads, within_seconds=2)
    assert election.spec == record("two", transitions=1)
    await two.stop()
    released = election.spec
    assert released == record("", seconds=1, transitions=1)
    assert released["acquireTime"] == released["renewTime"]


async def test_work_that_fails_releases_the_lease_and_raises_its_error(election: Election) -> None:
    async def lead() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await Process(election.leases, "one").elector.run(lead)
    assert election.leases.holder == ""


async def test_a_release_without_response_does_not_delay_the_end(
    election: Election, looptime: float
) -> None:
    one = await election.leader()
    one.link.reachable = False
    with capture_logs() as logs:
        await one.stop()
    assert looptime <= 2.2
    assert [line["error"] for line in logs] == ["no response in time"]
    assert one.ended == ["stopped"]


async def test_the_gauge_shows_the_leader(election: Election) -> None:
    def gauge() -> float | None:
        return REGISTRY.get_sample_value("leader_election_master_status", {"name": "manager"})

    one = election.start("one")
    assert gauge() == 0
    await asyncio.sleep(1)
    assert gauge() == 1
    await one.stop()
    assert gauge() == 0


Step = tuple[int, str, float]
"""A process, its fault, and the seconds before it."""

LINK_FAULTS = {
    "unreachable": ("reachable", False),
    "reachable": ("reachable", True),
    "refusing": ("refusing", True),
    "answering": ("refusing", False),
    "deaf": ("losing_answers", True),
    "hearing": ("losing_answers", False),
    "slow": ("latency_seconds", 3.0),
    "fast": ("latency_seconds", 0.001),
}
"""The attributes of a process's link, and their values."""
STEPS = st.lists(
    st.tuples(
        st.sampled_from((0, 1, 2)),
        st.sampled_from([*LINK_FAULTS, "stop", "start"]),
        st.floats(min_value=0.0, max_value=12.0, allow_nan=False),
    ),
    max_size=25,
)


@st.composite
def legal_durations(draw: st.DrawFn) -> Durations:
    renew_deadline = draw(st.floats(1.5, 30.0))
    shortest_lease = int(renew_deadline) + 1
    lease = draw(st.integers(shortest_lease, shortest_lease + 19))
    retry_period = draw(st.floats(0.2, renew_deadline / 1.25))
    return Durations(lease, renew_deadline, retry_period)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS, durations=st.just(DEFAULT_DURATIONS) | legal_durations())
@example([(0, "slow", 0.0), (0, "unreachable", 12.0)], Durations(15, 14.0, 2.0))
def test_whatever_fails_there_are_never_two_leaders(
    steps: list[Step], durations: Durations
) -> None:
    """And in the end one candidate leads.

    At every instant at most one fence is open, so no write of an old leader follows one of a new leader.
    The instants include those at which a paused process continues: the fence reads the clock when requests.
    """
    with asyncio.Runner(loop_factory=partial(looptime.new_event_loop, noop_cycles=2)) as runner:
        terms = runner.run(_play(steps, durations))

    for earlier, later in itertools.pairwise(terms):
        assert earlier.last_seen_at <= later.began_at


@dataclass
class Term:
    """A term of one leader. Times are loop times."""

    leader: int
    began_at: float
    last_seen_at: float


async def _play(steps: list[Step], durations: Durations) -> list[Term]:
    """Runs the steps, checks every tenth of a second, and returns the terms in order."""
    election = Election()
    for number in range(3):
        election.start(
            f"p{number}",
            skew=timedelta(hours=number),
            durations=durations,
        )
    terms: list[Term] = []
    async with asyncio.TaskGroup() as tasks:
        playing = tasks.create_task(_steps(election, steps, durations))
        while not playing.done():
            await asyncio.sleep(0.1)
            leaders = [number for number, process in enumerate(election.processes) if process.leads]
            assert len(leaders) <= 1, f"two leaders: {leaders}"
            for leader in leaders:
                if not terms or terms[-1].leader != leader:
                    terms.append(Term(leader, loop_time(), loop_time()))
                terms[-1].last_seen_at = loop_time()
    for process in election.processes:
        process.link.reachable = True
    await election.end()
    again = [election.start(f"again{number}", durations=durations) for number in range(3)]
    await asyncio.sleep(2 * (durations.lease + durations.retry_period) + 5)
    assert sum(process.leads for process in again) == 1
    await election.end()
    return terms


async def _steps(election: Election, steps: list[Step], durations: Durations) -> None:
    for number, fault, seconds in steps:
        await asyncio.sleep(seconds)
        process = election.processes[number]
        if fault in LINK_FAULTS:
            attribute, value = LINK_FAULTS[fault]
            setattr(process.link, attribute, value)
        elif fault == "stop":
            await process.stop()
        elif process.task is None or process.task.done():
            again = Process(election.leases, f"{process.name}+", durations=durations)
            again.start()
            election.processes[number] = again
