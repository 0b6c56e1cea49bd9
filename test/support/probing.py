"""Runs one attempt of a prober."""

from kruise_probe.daemon.probers.prober import Prober, ProbeResult, Target


async def result_of(prober: Prober, target: Target) -> ProbeResult:
    return await prober.run(target)
