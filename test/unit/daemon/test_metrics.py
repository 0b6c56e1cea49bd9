"""The metrics of the probes of a whole daemon, as a scrape reads them."""

import asyncio
from collections import Counter

import msgspec
import pytest
from prometheus_client import REGISTRY, generate_latest
from support.scripted_node import BAD, OK, ScriptedNode, exec_probe, one, pod_of, probe_of, spec_of

from kruise_probe.daemon.probers.prober import CouldNotProbe, ProbeResult, Reason

NAMES = {
    "probe_type": "custom",
    "container": "main",
    "pod": "pod",
    "namespace": "default",
    "probe": "marker#probe",
}
DURATION = "prober_probe_duration_seconds"


def total(result: str) -> float | None:
    labels = {
        **NAMES,
        "pod_uid": "uid-pod",
        "result": result,
    }
    return REGISTRY.get_sample_value("prober_probe_total", labels)


def duration(part: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(f"{DURATION}_{part}", NAMES | labels)


async def test_b21_totals_and_durations_have_kubelets_names(node: ScriptedNode) -> None:
    impossible = CouldNotProbe(Reason.EXEC_IMPOSSIBLE, "no")
    results: list[tuple[ProbeResult | Exception, float]] = [
        (OK, 0.03),
        (OK, 20),
        (BAD, 1),
        (impossible, 1),
    ]
    totals = []
    node.api.put(one(exec_probe(period_seconds=3600)))
    async with node.daemon():
        for result, seconds in results:
            node.probers.answer(result, seconds=seconds)
            node.containers.start()  # a new container is probed at once
            await asyncio.sleep(30)
            totals.append([total("successful"), total("failed"), total("unknown")])
        assert totals == [
            [1, None, None],
            [2, None, None],
            [2, 1, None],
            [2, 1, 1],
        ]
        assert duration("count") == 2
        assert duration("sum") == pytest.approx(20.03)
        assert duration("bucket", le="0.025") == 0
        assert duration("bucket", le="0.05") == 1
        assert duration("bucket", le="10.0") == 1
        assert duration("bucket", le="+Inf") == 2


async def test_each_of_many_probes_is_exported_once_also_with_two_pods_of_one_name(
    node: ScriptedNode,
) -> None:
    entry = probe_of(exec_probe())
    pods = []
    for number in range(101):
        name = f"web-{number}"
        pods.append(pod_of(entry, name=name))
        node.containers.start(name, age=100)
    pods[1] = msgspec.structs.replace(pods[1], name="web-0")
    node.api.put(spec_of(*pods))
    async with node.daemon(15):
        page = generate_latest(REGISTRY).decode()
    series = []
    names = Counter[str]()
    for line in page.splitlines():
        if line.startswith("prober_"):
            name, labels = line.rpartition(" ")[0].split("{")
            series.append((name, labels))
            names[name] += 1
    assert len(series) == len(set(series))
    assert names["prober_probe_total"] == 101
    assert names[f"{DURATION}_count"] == 100
