"""Managers as processes, each with its own proxy, so that a test sees which one sent a request."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from support import programs
from support.background import background
from support.hollow import (
    CONDITION,
    HollowCluster,
    healthy,
    node_name,
    probe,
    run_concurrently,
)
from support.patience import PATIENCE_SECONDS
from support.programs import Program
from support.proxy import FaultyProxy, SeenRequest, faulty_proxy
from support.target import condition

LEASE_SECONDS = 12.0

TALKING_NODES = 4


class ProxiedManager(NamedTuple):
    program: Program
    proxy: FaultyProxy

    def work(self) -> list[SeenRequest]:
        """Its writes, without those of the election."""
        return [request for request in self.proxy.log if request.is_work()]


Start = Callable[[str], Awaitable[ProxiedManager]]
"""Starts a manager of that name; returns once its caches are warm."""


def lease_flags(seconds: float) -> tuple[str, ...]:
    return (
        f"--leader-election-lease-duration={seconds:g}s",
        f"--leader-election-renew-deadline={seconds * 0.75:g}s",
        "--leader-election-retry-period=300ms",
    )


@asynccontextmanager
async def managers(
    ground: HollowCluster, folder: Path, *flags: str, nodes: int = TALKING_NODES, **pods: Any
) -> AsyncIterator[Start]:
    """A marker and its pods; once all are marked, results flip all the time on a few nodes.

    Few, as proxies, daemons and their followers share a process. Managers end with the block, if not before. `pods`
    are arguments of `Hollow.add_pods`.
    """
    await ground.hollow.add_nodes(nodes)
    await ground.hollow.add_pods(nodes=nodes, **pods)
    turns = 0

    def result_of(pod: str, _probe: str) -> tuple[str, str]:
        number = int(pod.removeprefix("pod-"))
        if number % nodes >= TALKING_NODES:
            return healthy(pod, _probe)
        state = "Succeeded" if turns % 2 else "Failed"
        return state, f"turn {turns}"

    async def flip() -> None:
        nonlocal turns
        async with background(ground.daemons.follow()):
            await all_marked(ground, seconds=600)
        talking = [node_name(number) for number in range(TALKING_NODES)]
        while True:
            turns += 1
            await run_concurrently(map(ground.daemons.write, talking))

    ground.daemons.result_of = result_of
    async with AsyncExitStack() as stack:

        async def start(name: str) -> ProxiedManager:
            proxy = await stack.enter_async_context(faulty_proxy(ground.upstream))
            kubeconfig = proxy.write_kubeconfig(folder, name)
            running = programs.running(
                "manager",
                kubeconfig,
                folder,
                *flags,
                name=name,
            )
            program = await stack.enter_async_context(running)
            await program.ready()
            return ProxiedManager(program, proxy)

        await ground.hollow.add_marker(probe())
        async with background(flip()):
            yield start


async def all_marked(ground: HollowCluster, *, seconds: float = PATIENCE_SECONDS) -> None:
    """Returns when the leader has marked every pod."""

    def are_marked() -> bool:
        return all(condition(pod, CONDITION) for pod in ground.api.pods.all())

    await ground.api.pods.wait("the leader works", are_marked, seconds=seconds)


@asynccontextmanager
async def two_managers(
    ground: HollowCluster, folder: Path
) -> AsyncIterator[tuple[ProxiedManager, ProxiedManager]]:
    """The working leader, and a standby with warm caches."""
    async with managers(
        ground,
        folder,
        *lease_flags(LEASE_SECONDS),
        count=40,
    ) as start:
        first = await start("first")
        second = await start("second")
        await all_marked(ground)
        assert not second.work(), "a standby writes nothing"
        yield first, second


async def first_work(manager: ProxiedManager, *, seconds: float) -> float:
    """The loop time of its first write."""
    await manager.proxy.until("it works", manager.work, seconds=seconds)
    return manager.work()[0].at


def assert_one_after_the_other(old: ProxiedManager, new: ProxiedManager) -> None:
    assert old.work()
    begin = new.work()[0].at
    late = [request for request in old.work() if request.at >= begin]
    assert not late, "the old leader wrote after the new one had begun"
