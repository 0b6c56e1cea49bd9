"""Runs one attempt of a prober, whether it needs waiting or not."""

import asyncio

from kruise_probe.daemon.probers.dialing import end_of_round
from kruise_probe.daemon.probers.prober import PendingResponse, Prober, ProbeResult, Target


async def result_of(prober: Prober, target: Target) -> ProbeResult:
    started = prober.probe(target)
    if isinstance(started, PendingResponse):
        loop = asyncio.get_running_loop()
        await asyncio.sleep(end_of_round(loop) - loop.time())
        started = started.poll()
    return started if isinstance(started, ProbeResult) else await started
