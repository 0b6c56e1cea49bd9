"""The probe of a victim, and the daemon's health, while another pod attacks the daemon."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

from support.background import background
from support.fake_runtime import ExecCall
from support.health import HealthChecks
from support.output import print_line
from support.process_node import ProcessNode
from support.programs import Program

from kruise_probe.daemon.cri.runtime import ExecResult

VICTIM = "victim"
LONGEST_GAP_SECONDS = 5.0
"""Between two runs of a probe with a period of a second, and without the longest stall of this process: a machine that
stalls a test that only waits stalls the daemon too."""

TICK_SECONDS = 0.1


class Victim:
    """The victim's command runs each second and prints how often it ran."""

    def __init__(self, node: ProcessNode) -> None:
        self.node = node
        self.since = 0.0
        self.runs = 0
        self.stall = 0.0
        node.container(VICTIM, self._count)
        node.add_probe(VICTIM, periodSeconds=1, timeoutSeconds=10)

    async def _count(self, _: ExecCall) -> ExecResult:
        self.runs += 1
        return ExecResult(0, f"run {self.runs}".encode(), b"")

    async def measure_stalls(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            await asyncio.sleep(TICK_SECONDS)
            self.stall = max(self.stall, loop.time() - began - TICK_SECONDS)

    async def assert_unaffected(
        self, daemon: Program, what: str, *, longest_gap_seconds: float = LONGEST_GAP_SECONDS
    ) -> None:
        """Asserts that the victim was probed and its results written."""
        now = asyncio.get_running_loop().time()
        began = [at for at in self.node.exec_times[VICTIM] if at > self.since]
        gaps = [b - a for a, b in pairwise([self.since, *began, now])]
        lag = await daemon.metric("kruise_probe_loop_lag_seconds")
        print_line(
            f"{what}: victim's longest gap {max(gaps):.2f} s, stall of the test {self.stall:.2f} s, "
            f"loop lag {lag * 1000:.0f} ms, peak {daemon.peak_mb:.0f} MB"
        )
        assert max(gaps) < longest_gap_seconds + self.stall
        runs = self.runs

        def newer() -> bool:
            number = self.node.states()[VICTIM][1].removeprefix("run ")
            return number.isdecimal() and int(number) > runs  # "command timed out" has none

        await self.node.api.node_pod_probes.wait("a newer result of the victim", newer)


@asynccontextmanager
async def daemon_with_victim(node: ProcessNode) -> AsyncIterator[tuple[Program, Victim]]:
    """A daemon that must stay healthy, and a victim with a first result."""
    victim = Victim(node)
    async with node.running() as daemon:
        await daemon.ready()
        await node.write_spec()
        await node.api.node_pod_probes.wait(
            "the victim has a result", lambda: VICTIM in node.states()
        )
        victim.since = asyncio.get_running_loop().time()
        async with background(HealthChecks(daemon).repeat()), background(victim.measure_stalls()):
            yield daemon, victim
