"""Managers as processes of their own, each with its own way to the API server, so that each request has an author."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from support import programs
from support.background import background
from support.hollow import CONDITION, Daemons, Hollow, node_name, probe, side_by_side
from support.patience import PATIENCE_SECONDS
from support.programs import Program
from support.proxy import FaultyProxy, Seen, faulty_proxy
from support.world import World, condition

from kruise_probe.client.config import ClusterConfig

LEASE_SECONDS = 8.0
LONG_LEASE_SECONDS = 60.0
"""So long that whoever leads before it has passed was given the Lease."""

TALKING_NODES = 4


class Ground(Protocol):
    """An API server, and hollow objects on it."""

    @property
    def upstream(self) -> ClusterConfig: ...
    @property
    def world(self) -> World: ...
    @property
    def hollow(self) -> Hollow: ...
    @property
    def daemons(self) -> Daemons: ...


class Candidate(NamedTuple):
    program: Program
    proxy: FaultyProxy

    def work(self) -> list[Seen]:
        """Its writes, but those of the election itself."""
        return [each for each in self.proxy.log if each.writes and not each.about_leases]


Start = Callable[[str], Awaitable[Candidate]]
"""Starts a candidate of that name; returns once its caches are warm."""


def lease_flags(seconds: float) -> tuple[str, ...]:
    return (
        f"--leader-election-lease-duration={seconds:g}s",
        f"--leader-election-renew-deadline={seconds * 0.75:g}s",
        "--leader-election-retry-period=300ms",
    )


@asynccontextmanager
async def candidates(
    ground: Ground, folder: Path, *flags: str, nodes: int = TALKING_NODES, **pods: Any
) -> AsyncIterator[Start]:
    """What there is to do: a marker, its pods, and once all are marked, results that flip all the time on a few nodes.

    Few, as proxies, daemons and their followers share a process. Candidates end with the block, if not before. `pods`
    are arguments of `Hollow.add_pods`.
    """
    await ground.hollow.add_nodes(nodes)
    await ground.hollow.add_pods(nodes=nodes, **pods)
    turns = 0

    def verdict(pod: str, _probe: str) -> tuple[str, str]:
        if int(pod.rpartition("-")[2]) % nodes >= TALKING_NODES:
            return "Succeeded", "fine"
        return ("Succeeded" if turns % 2 else "Failed"), f"turn {turns}"

    async def flip() -> None:
        nonlocal turns
        async with background(ground.daemons.follow()):
            await all_marked(ground, seconds=600)
        while True:
            turns += 1
            await side_by_side(map(ground.daemons.write, map(node_name, range(TALKING_NODES))))

    ground.daemons.verdict = verdict
    async with AsyncExitStack() as stack:

        async def start(name: str) -> Candidate:
            proxy = await stack.enter_async_context(faulty_proxy(ground.upstream))
            kubeconfig = proxy.write_kubeconfig(folder, name)
            program = await stack.enter_async_context(
                programs.running("manager", kubeconfig, folder, *flags, name=name)
            )
            await program.ready()
            return Candidate(program, proxy)

        await ground.hollow.add_marker(probe())
        async with background(flip()):
            yield start


async def all_marked(ground: Ground, *, seconds: float = PATIENCE_SECONDS) -> None:
    """Whoever leads has worked all of it off once."""
    await ground.world.pods.wait(
        "the leader works",
        lambda: all(condition(each, CONDITION) for each in ground.world.pods.all()),
        seconds=seconds,
    )


@asynccontextmanager
async def two_managers(
    ground: Ground, folder: Path, *, lease_seconds: float = LEASE_SECONDS
) -> AsyncIterator[tuple[Candidate, Candidate]]:
    """The leader, at work, and a standby with warm caches."""
    async with candidates(ground, folder, *lease_flags(lease_seconds), count=40) as start:
        first, second = await start("first"), await start("second")
        await all_marked(ground)
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
