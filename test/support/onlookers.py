"""What others see of a daemon while a pod attacks it: the probe of a victim, and a kubelet that checks /healthz."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

from support.background import background
from support.fake_runtime import ExecCall
from support.process_node import ProcessNode
from support.programs import Program
from support.saying import say

from kruise_probe.daemon.cri.runtime import ExecResult

VICTIM = "victim"
LONGEST_GAP_SECONDS = 3.0
"""Between two runs of a probe with a period of a second, on a machine that does other things, too."""


class Onlookers:
    """The victim's command runs each second and prints how often it ran."""

    def __init__(self, node: ProcessNode) -> None:
        self.node = node
        self.since = 0.0
        self.health: list[int] = []
        self.runs = 0
        node.container(VICTIM, self._count)
        node.wish(VICTIM, periodSeconds=1)

    async def _count(self, _: ExecCall) -> ExecResult:
        self.runs += 1
        return ExecResult(0, f"run {self.runs}".encode(), b"")

    async def check_health(self, daemon: Program) -> None:
        while True:
            self.health.append((await daemon.get("healthz"))[0])
            await asyncio.sleep(0.5)

    async def saw_nothing(self, daemon: Program, what: str) -> None:
        """Asserts that the victim was probed and its results written, and that /healthz was always 200."""
        now = asyncio.get_running_loop().time()
        began = [at for at in self.node.began[VICTIM] if at > self.since]
        gaps = [b - a for a, b in pairwise([self.since, *began, now])]
        lag = await daemon.metric("kruise_probe_loop_lag_seconds")
        say(
            f"{what}: victim's longest gap {max(gaps):.2f} s, loop lag {lag * 1000:.0f} ms, peak {daemon.peak_mb:.0f} MB"
        )
        assert max(gaps) < LONGEST_GAP_SECONDS
        assert set(self.health) == {200}
        runs = self.runs

        def newer() -> bool:
            message = self.node.states()[VICTIM][1]
            return int(message.removeprefix("run ") or 0) > runs

        await self.node.world.reports.wait("a newer result of the victim", newer)


@asynccontextmanager
async def watched_daemon(node: ProcessNode) -> AsyncIterator[tuple[Program, Onlookers]]:
    """A daemon whose victim has a first result; attacks are added after that."""
    onlookers = Onlookers(node)
    async with node.running() as daemon:
        await daemon.ready()
        await node.ask()
        await node.world.reports.wait("the victim has a result", lambda: VICTIM in node.states())
        onlookers.since = asyncio.get_running_loop().time()
        async with background(onlookers.check_health(daemon)):
            yield daemon, onlookers
