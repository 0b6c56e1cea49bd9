"""A process that was stopped reports this on /healthz."""

import asyncio
import signal
from typing import Any

from support.fake_runtime import ScriptedRuntime
from support.hollow import node_name
from support.programs import Program

from kruise_probe.serving.stalls import MAX_LAG_SECONDS

FROZEN_SECONDS = MAX_LAG_SECONDS + 1.5
"""The loop's clock goes on meanwhile; a tick of a second may just have begun."""


async def test_a33_manager_and_daemon_that_were_frozen_are_not_healthy(cluster: Any) -> None:
    await cluster.hollow.add_node(node_name(0))
    async with (
        cluster.manager() as manager,
        cluster.daemon(node_name(0), ScriptedRuntime()) as daemon,
    ):
        both = (manager, daemon)
        for each in both:
            await each.ready()
            assert (await each.get("healthz"))[0] == 200
            each.send(signal.SIGSTOP)
        await asyncio.sleep(FROZEN_SECONDS)
        for each in both:
            each.send(signal.SIGCONT)

        async def reports_it(program: Program) -> bool:
            status, text = await program.get("healthz")
            return status == 503 and "the event loop was blocked for" in text

        for each in both:
            await each.until("it reports the stall", lambda each=each: reports_it(each))
