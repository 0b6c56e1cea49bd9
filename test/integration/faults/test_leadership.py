"""Two managers as processes of their own, each with its own way to the API server, so that each request has an author."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple

from support import programs
from support.background import background
from support.hollow import CONDITION, probe
from support.programs import Program
from support.proxy import FaultyProxy, Seen, faulty_proxy
from support.world import condition

LEASE_SECONDS = 2.0
FLAGS = (
    f"--leader-election-lease-duration={LEASE_SECONDS:g}s",
    "--leader-election-renew-deadline=1500ms",
    "--leader-election-retry-period=300ms",
)


class Candidate(NamedTuple):
    program: Program
    proxy: FaultyProxy

    def work(self) -> list[Seen]:
        """Its writes, but those of the election itself."""
        return [each for each in self.proxy.log if each.writes and not each.about_leases]


@asynccontextmanager
async def two_managers(arena: Any) -> AsyncIterator[tuple[Candidate, Candidate]]:
    """The leader, at work, and a standby with warm caches. Results of all pods flip all the time."""
    await arena.hollow.add_nodes(4)
    await arena.hollow.add_pods(40, nodes=4)
    turns = 0

    async def flip() -> None:
        nonlocal turns
        while True:
            turns += 1
            await arena.daemons.talk_once()

    arena.daemons.verdict = lambda pod, name: (
        "Succeeded" if turns % 2 else "Failed",
        f"turn {turns}",
    )
    async with AsyncExitStack() as stack:
        pair = []
        for name in ("first", "second"):
            proxy = await stack.enter_async_context(faulty_proxy(arena.server.url))
            kubeconfig = proxy.write_kubeconfig(arena.folder, name)
            program = await stack.enter_async_context(
                programs.running("manager", kubeconfig, arena.folder, *FLAGS, name=name)
            )
            await program.ready()
            pair.append(Candidate(program, proxy))
        await arena.hollow.add_marker(probe())
        first, second = pair
        async with background(flip()):
            await arena.world.pods.wait(
                "the leader works",
                lambda: all(condition(each, CONDITION) for each in arena.world.pods.all()),
            )
            assert not second.work(), "a standby writes nothing"
            yield first, second


async def first_work(candidate: Candidate, *, seconds: float) -> float:
    """The loop time of its first write."""
    await candidate.proxy.until("it works", lambda: bool(candidate.work()), seconds=seconds)
    return candidate.work()[0].at


def assert_one_after_the_other(old: Candidate, new: Candidate) -> None:
    assert old.work()
    assert new.work()
    late = [each for each in old.work() if each.at >= new.work()[0].at]
    assert not late, "the old leader wrote after the new one had begun"


async def test_c11_a_leader_that_is_stopped_hands_over_within_two_seconds(arena):
    async with two_managers(arena) as (old, new):
        began = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as group:
            ending = group.create_task(old.program.terminate())
            at = await first_work(new, seconds=10)
        assert at - began < 2.0
        assert ending.result()[0] == 0
        assert_one_after_the_other(old, new)


async def test_c11_a_leader_that_is_killed_is_followed_after_its_lease(arena):
    async with two_managers(arena) as (old, new):
        began = asyncio.get_running_loop().time()
        await old.program.kill()
        at = await first_work(new, seconds=LEASE_SECONDS + 10)
        assert at - began < LEASE_SECONDS + 2.0
        assert_one_after_the_other(old, new)


async def test_d5_a_leader_that_was_paused_writes_nothing_when_it_wakes_up_and_ends(arena):
    async with two_managers(arena) as (old, new):
        old.program.send(signal.SIGSTOP)
        await first_work(new, seconds=LEASE_SECONDS + 10)
        old.program.send(signal.SIGCONT)
        async with asyncio.timeout(10):
            code = await old.program.process.wait()
        assert code == 1
        assert_one_after_the_other(old, new)


async def test_d5_a_leader_that_loses_the_api_server_stops_before_another_begins(arena):
    async with two_managers(arena) as (old, new):
        old.proxy.black_hole()
        await first_work(new, seconds=LEASE_SECONDS + 10)
        async with asyncio.timeout(10):
            code = await old.program.process.wait()
        assert code == 1
        assert_one_after_the_other(old, new)


async def test_d5_a_lease_that_cannot_be_renewed_costs_the_leadership_and_the_process(arena):
    async with two_managers(arena) as (old, new):
        old.proxy.fail(
            500, reason="InternalError", when=lambda seen: seen.writes and seen.about_leases
        )
        await first_work(new, seconds=LEASE_SECONDS + 15)
        async with asyncio.timeout(10):
            code = await old.program.process.wait()
        assert code == 1
        assert_one_after_the_other(old, new)
