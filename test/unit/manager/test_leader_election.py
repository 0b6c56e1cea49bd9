"""Leader election on virtual time, with the network and the processes under the test's control."""

import asyncio
import itertools
from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple

import looptime
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from prometheus_client import REGISTRY
from structlog.testing import capture_logs
from support.fake_leases import FakeElectionClient, FakeLeases

from kruise_probe.api.errors import ConnectionFailed
from kruise_probe.api.times import utc_now
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
        self.led_at: list[float] = []
        self.drain_seconds = 0.0
        options = LeaderElection("kruise-system", "manager", name, *durations)
        self.elector = LeaderElector(self.link, options, now=lambda: utc_now() + skew)
        self.task: asyncio.Task[None] | None = None

    def start(self) -> "Process":
        self.task = asyncio.create_task(self._run(), name=self.name)
        return self

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
        self.led_at.append(asyncio.get_running_loop().time())
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
    time = asyncio.get_running_loop().time
    begun = time()
    while not condition():
        assert time() - begun < within_seconds, f"not within {within_seconds} s"
        await asyncio.sleep(0.05)
    return time() - begun


async def leading() -> tuple[FakeLeases, Process]:
    """A Lease, and the process `one` that leads by it."""
    leases = FakeLeases()
    one = Process(leases, "one").start()
    await until(lambda: one.leads, within_seconds=1)
    return leases, one


async def test_a_stopped_leader_releases_last_and_the_standby_leads_within_2_s() -> None:
    leases, one = await leading()
    two = Process(leases, "two").start()
    await asyncio.sleep(30)
    one.drain_seconds = 3.0
    stopping = asyncio.create_task(one.stop())
    await asyncio.sleep(2.9)
    still_held = leases.holder
    await stopping

    assert still_held == "one"
    assert not one.leads
    assert await until(lambda: two.leads, within_seconds=2) < 2
    assert two.led == 1
    await two.stop()


async def test_a_leader_stopped_during_a_renewal_releases_the_lease() -> None:
    """The server has applied the renewal; the candidate no longer waits for the response."""
    leases, one = await leading()
    two = Process(leases, "two").start()
    await asyncio.sleep(10)
    one.link.latency_seconds = 0.2
    writes = leases.writes
    await until(lambda: leases.writes > writes, within_seconds=3)
    await one.stop()

    assert await until(lambda: two.leads, within_seconds=2) < 2
    await two.stop()


async def test_the_lease_of_a_killed_leader_is_acquired_when_it_expires() -> None:
    leases, one = await leading()
    two = Process(leases, "two").start()
    await asyncio.sleep(30)
    one.link.reachable = False
    took = await until(lambda: two.leads, within_seconds=17)

    assert took >= 13
    await one.stop()
    await two.stop()


async def test_a_leader_that_cannot_renew_stops_before_another_may_lead() -> None:
    leases, one = await leading()
    one.link.reachable = False
    took = await until(lambda: not one.leads, within_seconds=11)
    await until(lambda: one.ended == ["lost"], within_seconds=1)

    assert 7.9 <= took <= 10.1
    assert leases.holder == "one"
    assert "kruise-system/manager: not renewed for 10 s" in one.reason
    await one.stop()


@pytest.mark.parametrize("latency_seconds", [0.001, 0.5, 1.0])
async def test_a_term_counts_from_the_sending_of_its_renewal(latency_seconds: float) -> None:
    """Not from its response: others count from when the server stored it, which is before the response arrives."""
    leases, one = await leading()
    one.link.latency_seconds = latency_seconds
    await asyncio.sleep(20)
    writes = leases.writes
    await until(lambda: leases.writes > writes, within_seconds=12)
    sent_at = asyncio.get_running_loop().time() - latency_seconds
    await asyncio.sleep(latency_seconds + 0.1)
    one.link.reachable = False
    await until(lambda: not one.leads, within_seconds=11)
    led_for = asyncio.get_running_loop().time() - sent_at
    await one.stop()

    assert 9.8 <= led_for <= 10.1


@st.composite
def legal_durations(draw: st.DrawFn) -> Durations:
    renew_deadline = draw(st.floats(1.5, 30.0))
    lease = draw(st.integers(int(renew_deadline) + 1, int(renew_deadline) + 20))
    return Durations(lease, renew_deadline, draw(st.floats(0.2, renew_deadline / 1.25)))


@settings(max_examples=20, deadline=None)
@given(
    durations=legal_durations(),
    share=st.floats(0.0, 0.1),
    cut_after=st.floats(0.0, 20.0),
)
@example(Durations(15, 14.0, 2.0), 0.1, 2.0)
def test_with_any_legal_durations_and_latency_there_is_one_leader(
    durations: Durations, share: float, cut_after: float
) -> None:
    """`share` is the latency each way, as a part of the renew deadline; a renewal and a retry have half of it."""

    async def play() -> None:
        leases = FakeLeases()
        old = Process(leases, "old", durations=durations)
        new = Process(leases, "new", durations=durations)
        old.link.latency_seconds = share * durations.renew_deadline
        old.start()
        await until(lambda: old.leads, within_seconds=100)
        new.start()
        await asyncio.sleep(cut_after)
        # The next renewal is stored, and its response arrives. After that, nothing does.
        writes = leases.writes
        await until(lambda: leases.writes > writes or not old.leads, within_seconds=100)
        await asyncio.sleep(old.link.latency_seconds + 0.01)
        old.link.reachable = False
        await until(lambda: new.leads, within_seconds=durations.lease * 2 + 5)
        assert not old.leads, "two leaders"
        await old.stop()
        await new.stop()

    with asyncio.Runner(loop_factory=looptime.new_event_loop) as runner:
        runner.run(play())


async def test_a_lost_response_is_not_taken_for_another_leader() -> None:
    """The renewal was stored, but its response was lost. The next renewal finds an unexpected version."""
    _, one = await leading()
    one.link.losing_answers = True
    await asyncio.sleep(2.5)
    one.link.losing_answers = False
    await asyncio.sleep(20)

    assert one.leads
    await one.stop()


async def test_a_lease_held_by_another_ends_the_leader_at_its_next_renewal() -> None:
    leases, one = await leading()
    assert leases.stored is not None
    leases.stored["spec"]["holderIdentity"] = "thief"
    leases.version += 1
    leases.stored["metadata"]["resourceVersion"] = str(leases.version)

    assert await until(lambda: not one.leads, within_seconds=3) < 2.5
    await until(lambda: one.ended == ["lost"], within_seconds=1)
    assert leases.holder == "thief"
    assert one.reason == "lease kruise-system/manager: thief holds it now"


async def test_a_deleted_lease_makes_no_second_leader() -> None:
    leases, one = await leading()
    two = Process(leases, "two").start()
    await asyncio.sleep(5)
    leases.delete()
    await asyncio.sleep(30)

    assert one.leads
    assert two.led == 0
    await one.stop()
    await two.stop()


async def test_a_leader_whose_lease_was_deleted_stops_at_once(looptime: float) -> None:
    leases = FakeLeases()
    one = Process(leases, "one").start()
    await asyncio.sleep(1)
    leases.delete()
    await one.stop()

    assert looptime < 1.1
    assert leases.stored is None


async def test_a_standby_with_a_working_watch_does_not_poll() -> None:
    leases, one = await leading()
    two = Process(leases, "two")
    reads: list[float] = []
    get = two.link.get

    async def counted(*args: object, **options: object) -> object:
        reads.append(asyncio.get_running_loop().time())
        return await get(*args, **options)  # type: ignore[arg-type]  # forwards whatever comes

    two.link.get = counted  # type: ignore[method-assign]  # the test listens in
    two.start()
    await asyncio.sleep(120)
    assert len(reads) == 1
    await asyncio.sleep(190)
    assert len(reads) == 2, "a watch ends after five minutes"

    await one.stop()
    await two.stop()


async def test_a_standby_without_a_watch_acquires_the_lease_in_time() -> None:
    leases, one = await leading()
    two = Process(leases, "two").start()
    await asyncio.sleep(5)
    two.link.reachable = False
    await one.stop()
    await asyncio.sleep(3)
    two.link.reachable = True

    assert await until(lambda: two.leads, within_seconds=17) < 17
    await two.stop()


async def test_failed_attempts_are_repeated_once_per_retry_period() -> None:
    leases = FakeLeases()
    one = Process(leases, "one")
    requests = 0

    async def refuse(*_: object, **__: object) -> object:
        nonlocal requests
        requests += 1
        raise ConnectionFailed("refused")

    one.link.create = one.link.get = refuse  # type: ignore[method-assign]  # a broken server
    with capture_logs() as logs:
        one.start()
        await asyncio.sleep(60)
        await one.stop()

    assert 25 <= requests <= 60
    assert [each["event"] for each in logs if each["log_level"] == "warning"] == [
        "lease cannot be watched"
    ], "the same error again is logged at debug level"
    assert {each["error"] for each in logs if "error" in each} == {"refused"}


@pytest.mark.parametrize("method", ["get", "create", "patch"])
async def test_a_request_without_response_is_repeated_after_half_the_renew_deadline(
    method: str,
) -> None:
    """That is 5 s, and the retry period of 2 s with its jitter."""
    one = Process(FakeLeases(), "one")
    times: list[float] = []

    async def hang(*_: object, **__: object) -> None:
        times.append(asyncio.get_running_loop().time())
        await asyncio.get_running_loop().create_future()

    setattr(one.link, method, hang)
    one.start()
    await asyncio.sleep(9.5)
    await one.stop()

    first, second = times[:2]
    assert 6.99 <= second - first <= 7.45


async def test_a_bookmark_is_no_deletion_of_the_lease() -> None:
    leases = FakeLeases()
    one, two = Process(leases, "one").start(), Process(leases, "two").start()
    await asyncio.sleep(5)
    leases.bookmark()
    await asyncio.sleep(0.1)

    assert two.elector._observed
    assert two.elector._observed.resource_version == str(leases.version)
    await one.stop()
    await two.stop()


async def test_a_lost_race_for_the_lease_is_no_warning() -> None:
    leases = FakeLeases()
    with capture_logs() as logs:
        candidates = [Process(leases, name).start() for name in ("one", "two", "three")]
        await asyncio.sleep(60)
        changes = [each["holder"] for each in logs if each["event"] == "leader changed"]
        for each in candidates:
            await each.stop()

    assert not [each for each in logs if each["log_level"] == "warning"]
    assert len(changes) == 3, "each candidate logs the leader once"
    assert len(set(changes)) == 1


async def test_renewals_keep_the_acquire_time_and_the_transitions() -> None:
    leases, one = await leading()
    assert leases.stored
    acquired = dict(leases.stored["spec"])
    await asyncio.sleep(30)
    renewed = leases.stored["spec"]
    assert leases.writes > 10
    assert renewed["leaseTransitions"] == acquired["leaseTransitions"] == 0
    assert renewed["acquireTime"] == acquired["acquireTime"]
    await one.stop()


async def test_work_that_fails_releases_the_lease_and_raises_its_error() -> None:
    leases = FakeLeases()

    async def lead() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await Process(leases, "one").elector.run(lead)
    assert leases.holder == ""


async def test_a_release_without_response_does_not_delay_the_end() -> None:
    _, one = await leading()
    one.link.reachable = False
    begun = asyncio.get_running_loop().time()
    with capture_logs() as logs:
        await one.stop()

    assert asyncio.get_running_loop().time() - begun <= 2.1
    assert [each["error"] for each in logs] == ["no response in time"]
    assert one.ended == ["stopped"]


async def test_the_gauge_shows_the_leader() -> None:
    def gauge() -> float | None:
        return REGISTRY.get_sample_value("leader_election_master_status", {"name": "manager"})

    leases = FakeLeases()
    one = Process(leases, "one")
    before = gauge()
    one.start()
    await until(lambda: one.leads, within_seconds=1)
    await asyncio.sleep(0.1)
    during = gauge()
    await one.stop()

    assert (before, during, gauge()) == (0, 1, 0)


FAULTS = ("unreachable", "reachable", "refusing", "answering", "deaf", "hearing", "slow", "fast",
          "stop", "start")  # fmt: skip
STEPS = st.lists(
    st.tuples(
        st.sampled_from((0, 1, 2)),
        st.sampled_from(FAULTS),
        st.floats(min_value=0.0, max_value=12.0, allow_nan=False),
    ),
    max_size=25,
)


@settings(max_examples=40, deadline=None)
@given(steps=STEPS)
def test_whatever_fails_there_are_never_two_leaders(steps: list[tuple[int, str, float]]) -> None:
    """At every instant at most one fence is open, so no write of an old leader follows one of a new leader.

    The instants include those at which a paused process continues: the fence reads the clock when requests.
    """
    with asyncio.Runner(loop_factory=looptime.new_event_loop) as runner:
        terms = runner.run(_play(steps))

    for (_, ended), (begun, _) in itertools.pairwise(terms):
        assert ended <= begun


async def _play(steps: list[tuple[int, str, float]]) -> list[tuple[float, float]]:
    """Runs the steps, checks every tenth of a second, and returns when each term began and ended."""
    leases = FakeLeases()
    processes = [
        Process(leases, f"p{number}", skew=timedelta(hours=number)).start() for number in range(3)
    ]
    terms: list[tuple[float, float]] = []
    time = asyncio.get_running_loop().time
    leading = -1
    async with asyncio.TaskGroup() as tasks:
        playing = tasks.create_task(_steps(leases, processes, steps))
        while not playing.done():
            await asyncio.sleep(0.1)
            now = [number for number, each in enumerate(processes) if each.leads]
            assert len(now) <= 1, f"two leaders: {now}"
            if now and now[0] != leading:
                terms.append((time(), time()))
                leading = now[0]
            elif now:
                terms[-1] = (terms[-1][0], time())
    for each in processes:
        each.link.reachable = True
        await each.stop()
    return terms


async def _steps(
    leases: FakeLeases, processes: list[Process], steps: list[tuple[int, str, float]]
) -> None:
    for number, fault, seconds in steps:
        await asyncio.sleep(seconds)
        process = processes[number]
        match fault:
            case "unreachable" | "reachable":
                process.link.reachable = fault == "reachable"
            case "refusing" | "answering":
                process.link.refusing = fault == "refusing"
            case "deaf" | "hearing":
                process.link.losing_answers = fault == "deaf"
            case "slow" | "fast":
                process.link.latency_seconds = 3.0 if fault == "slow" else 0.001
            case "stop":
                await process.stop()
            case _:
                if process.task is None or process.task.done():
                    processes[number] = Process(leases, f"{process.name}+").start()


@settings(max_examples=20, deadline=None)
@given(steps=STEPS)
def test_after_failures_a_candidate_leads_again(steps: list[tuple[int, str, float]]) -> None:
    async def play() -> int:
        leases = FakeLeases()
        processes = [Process(leases, f"p{number}").start() for number in range(3)]
        await _steps(leases, processes, steps)
        for number, each in enumerate(processes):
            await each.stop()
            processes[number] = Process(leases, f"again{number}").start()
        await asyncio.sleep(40)
        leaders = sum(each.leads for each in processes)
        for each in processes:
            await each.stop()
        return leaders

    with asyncio.Runner(loop_factory=looptime.new_event_loop) as runner:
        assert runner.run(play()) == 1
