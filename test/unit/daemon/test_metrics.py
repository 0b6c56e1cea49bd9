"""The metrics of the probes of a whole daemon, as a scrape reads them."""

import asyncio

import msgspec
import pytest
from prometheus_client import REGISTRY
from support.scripted_node import BAD, OK, ScriptedNode, exec_probe, one, pod_of, probe_of, spec_of

from kruise_probe.daemon.probers.prober import CouldNotProbe, Reason

NAMES = {"probe_type": "custom", "container": "main", "pod": "pod", "namespace": "default", "probe": "marker#probe"}  # fmt: skip
DURATION = "prober_probe_duration_seconds"


def total(result: str) -> float | None:
    labels = {**NAMES, "pod_uid": "uid-pod", "result": result}
    return REGISTRY.get_sample_value("prober_probe_total", labels)


async def test_b21_totals_and_durations_have_kubelets_names(node: ScriptedNode) -> None:
    results = (OK, 0.03), (OK, 20), (BAD, 1), (CouldNotProbe(Reason.EXEC_IMPOSSIBLE, "no"), 1)
    totals: list[tuple[float | None, ...]] = []
    node.api.put(one(exec_probe(period_seconds=3600)))
    async with node.daemon():
        for result, seconds in results:
            node.probers.answer(result, seconds=seconds)
            node.containers.start()  # a new container is probed at once
            await asyncio.sleep(30)
            totals.append(tuple(map(total, ("successful", "failed", "unknown"))))
        assert totals == [(1, None, None), (2, None, None), (2, 1, None), (2, 1, 1)]
        assert REGISTRY.get_sample_value(f"{DURATION}_count", NAMES) == 2
        assert REGISTRY.get_sample_value(f"{DURATION}_sum", NAMES) == pytest.approx(20.03)
        buckets = {"0.025": 0, "0.05": 1, "10.0": 1, "+Inf": 2}
        for le, count in buckets.items():
            labels = {**NAMES, "le": le}
            assert REGISTRY.get_sample_value(f"{DURATION}_bucket", labels) == count


async def test_each_of_many_probes_is_exported_once_also_with_two_pods_of_one_name(
    node: ScriptedNode,
) -> None:
    pods = [pod_of(probe_of(exec_probe()), name=f"web-{number}") for number in range(101)]
    pods[1] = msgspec.structs.replace(pods[1], name="web-0")
    for number in range(len(pods)):
        node.containers.start(f"web-{number}", age=100)
    node.api.put(spec_of(*pods))
    async with node.daemon(15):
        samples = [
            (sample.name, tuple(sorted(sample.labels.items())))
            for family in REGISTRY.collect()
            for sample in family.samples
            if sample.name.startswith("prober_")
        ]
    assert len(samples) == len(set(samples))
    assert [name for name, _ in samples].count("prober_probe_total") == 101
    assert [name for name, _ in samples].count(f"{DURATION}_count") == 100
