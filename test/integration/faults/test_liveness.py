"""A process that was stopped reports this on /healthz."""

import asyncio
import signal

from support.embedded_cluster import EmbeddedCluster
from support.fake_runtime import ScriptedRuntime
from support.hollow import node_name
from support.programs import Program

from kruise_probe.serving.stalls import MAX_LAG_SECONDS

FROZEN_SECONDS = MAX_LAG_SECONDS + 1.5
"""The loop's clock goes on meanwhile; a tick of a second may just have begun."""


async def test_a33_manager_and_daemon_that_were_frozen_are_not_healthy(
    cluster: EmbeddedCluster,
) -> None:
    node = node_name(0)
    await cluster.hollow.add_node(node)
    async with cluster.manager() as manager, cluster.daemon(node, ScriptedRuntime()) as daemon:
        both = (manager, daemon)
        for program in both:
            await program.ready()
            assert await program.is_healthy()
            program.send(signal.SIGSTOP)
        await asyncio.sleep(FROZEN_SECONDS)
        for program in both:
            program.send(signal.SIGCONT)
        for program in both:
            await until_it_reports_the_stall(program)


async def until_it_reports_the_stall(program: Program) -> None:
    async def reports_it() -> bool:
        status, text = await program.get("healthz")
        return status == 503 and "the event loop was blocked for" in text

    await program.until("it reports the stall", reports_it)
