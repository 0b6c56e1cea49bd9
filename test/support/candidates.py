"""Two managers as processes of their own, each with its own way to the API server, so that each request has an author."""

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
LONG_LEASE_SECONDS = 60.0
"""So long that whoever leads before it has passed was given the Lease."""


class Candidate(NamedTuple):
    program: Program
    proxy: FaultyProxy

    def work(self) -> list[Seen]:
        """Its writes, but those of the election itself."""
        return [each for each in self.proxy.log if each.writes and not each.about_leases]


@asynccontextmanager
async def two_managers(
    arena: Any, *, lease_seconds: float = LEASE_SECONDS
) -> AsyncIterator[tuple[Candidate, Candidate]]:
    """The leader, at work, and a standby with warm caches. Results of all pods flip all the time."""
    await arena.hollow.add_nodes(4)
    await arena.hollow.add_pods(40, nodes=4)
    flags = (
        f"--leader-election-lease-duration={lease_seconds:g}s",
        f"--leader-election-renew-deadline={lease_seconds * 0.75:g}s",
        "--leader-election-retry-period=300ms",
    )
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
                programs.running("manager", kubeconfig, arena.folder, *flags, name=name)
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
