"""What one tenant may do within all limits holds no step of the manager for long, and a pod of another namespace is written meanwhile.

The manager's work is counted in calls of the controllers' functions, which are the same on every machine: some 60,000 take 50 ms
of CPU. On virtual time, so only work takes time.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from soak.conftest import Limits
from soak.forms import forms
from support.builders import marker_wire, node_wire, pod_wire, policy_wire, probe_wire, state_wire
from support.cases import cases
from support.output import print_line
from support.steps import Calls, Cluster

from kruise_probe.api.meta import NamespacedName, Resource
from kruise_probe.api.resources import MARKERS, NODE_POD_PROBES, NODES, PODS

CALL_SECONDS = 5e-7
CALLS_OF_A_STEP = 45_000
CALLS_BEFORE_THE_WRITE = 100_000
STEP_SECONDS = 0.05
FINALIZER = "kruise.io/node-pod-probe-cleanup"
QUIET = NamespacedName("quiet", "quiet-0")


class Tenants(Cluster):
    """Also records how many calls there were before the first write of the quiet pod."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = Calls()
        self.calls_before: int | None = None

    async def patch(
        self, resource: Resource[Any], key: NamespacedName, body: bytes, **_: Any
    ) -> Any:
        if key == QUIET and self.calls_before is None:
            self.calls_before = self.calls.total
        return await super().patch(resource, key, body)

    def put_pods(self, count: int, *, nodes: int) -> None:
        for number in range(nodes):
            self.put(NODES, node_wire(f"node-{number}"))
        for number in range(count):
            pod = pod_wire(f"web-{number}", node=f"node-{number % nodes}")
            self.put(PODS, pod)
        quiet = pod_wire(QUIET.name, namespace=QUIET.namespace, node="node-0")
        self.put(PODS, quiet)
        self.put(MARKERS, marker_wire("quiet", namespace=QUIET.namespace))

    def put_marker(self, number: int, *, probes: int = 1, finalizer: str = FINALIZER) -> None:
        policy = policy_wire(labels={f"label-{number}": "1"})
        wire = marker_wire(
            f"m{number:04}",
            probes=[
                probe_wire(f"p{place}", condition=f"c/{number}-{place}", policies=[policy])
                for place in range(probes)
            ],
            created=f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z",
            finalizers=[finalizer],
            deleting=finalizer != FINALIZER,
        )
        self.put(MARKERS, wire)

    def put_results(self, state: str, *, of_quiet_only: bool = False) -> None:
        """As the daemons of all nodes would."""
        reports = self.served[NODE_POD_PROBES.plural].wires
        for report in list(reports.values()):
            before = report.get("status", {}).get("podProbeStatuses", ())
            statuses = {status["uid"]: status for status in before}
            for entry in report["spec"].get("podProbes") or ():
                if of_quiet_only and entry["namespace"] != QUIET.namespace:
                    continue
                states = [state_wire(probe["name"], state) for probe in entry["probes"]]
                statuses[entry["uid"]] = {
                    "name": entry["name"],
                    "namespace": entry["namespace"],
                    "uid": entry["uid"],
                    "probeStates": states,
                }
            report["status"] = {"podProbeStatuses": list(statuses.values())}
            self.put(NODE_POD_PROBES, report)

    def change_ips(self, count: int) -> None:
        pods = self.served[PODS.plural].wires
        for number in range(count):
            pod = pods[NamespacedName("default", f"web-{number}")]
            pod["status"]["podIP"] = f"10.0.{number // 250}.{number % 250}"
            self.put(PODS, pod)


class Attack:
    """`prepare` before the manager runs, `begin` while it runs; `size` is 1.0 for what was seen to stop a manager.

    Attributes:
        calls: most that it may cause in the short form.
    """

    calls: int

    def __init__(self, size: float) -> None:
        self.size = size

    def scaled(self, count: int) -> int:
        return max(int(count * self.size), 1)

    def prepare(self, cluster: Tenants) -> None: ...

    def begin(self, cluster: Tenants) -> None: ...


class ManyProbes(Attack):
    """64 markers of 32 probes begin to select 1,200 pods."""

    calls = 2_000_000

    def prepare(self, cluster: Tenants) -> None:
        cluster.put_pods(self.scaled(1200), nodes=2 if self.size < 1 else 12)

    def begin(self, cluster: Tenants) -> None:
        for number in range(64):
            cluster.put_marker(number, probes=32)


class HeldMarkers(Attack):
    """Pods change while 1,500 markers are being deleted, held by the tenant's own finalizer."""

    calls = 1_000

    def prepare(self, cluster: Tenants) -> None:
        cluster.put_pods(max(self.scaled(180), 20), nodes=3)
        for number in range(self.scaled(1500)):
            cluster.put_marker(number, finalizer="example.com/theirs")

    def begin(self, cluster: Tenants) -> None:
        cluster.change_ips(20)


class LiveMarkers(Attack):
    """Pods change that 1,200 markers select. Without the limit of markers for a pod, there are 1.1 million calls."""

    calls = 800_000

    def prepare(self, cluster: Tenants) -> None:
        self._pods = max(self.scaled(200), 100)
        cluster.put_pods(self._pods, nodes=4)
        for number in range(1200):
            cluster.put_marker(number)

    def begin(self, cluster: Tenants) -> None:
        cluster.change_ips(self._pods)


class DeletedMarkers(Attack):
    """A user deletes 60 markers that select 600 pods."""

    calls = 130_000

    def prepare(self, cluster: Tenants) -> None:
        cluster.put_pods(self.scaled(600), nodes=6)
        for number in range(60):
            cluster.put_marker(number)

    def begin(self, cluster: Tenants) -> None:
        for number in range(60):
            cluster.remove(MARKERS, f"m{number:04}", "default")


@pytest.fixture
async def cluster(monkeypatch: pytest.MonkeyPatch, short: bool) -> Tenants:
    """Its work takes time, calls or CPU: otherwise slices would not end."""
    cluster = Tenants()
    loop = asyncio.get_running_loop()
    virtual_time = loop.time

    def now() -> float:
        used = cluster.calls.total * CALL_SECONDS if short else time.thread_time()
        return virtual_time() + used

    monkeypatch.setattr(loop, "time", now)
    return cluster


@forms(short="a-tenth-of-the-size", long="whole-size")
@cases(
    "attack",
    row_1=ManyProbes,
    row_2=HeldMarkers,
    row_3=LiveMarkers,
    row_3_deleted=DeletedMarkers,
)
@pytest.mark.looptime(noop_cycles=2)
async def test_the_work_of_a_tenant_delays_no_other(
    cluster: Tenants, attack: Callable[[float], Attack], limits: Limits, short: bool
) -> None:
    attacker = attack(0.1 if short else 1.0)
    attacker.prepare(cluster)
    async with cluster.running():
        await asyncio.sleep(30)
        cluster.put_results("Succeeded")
        await asyncio.sleep(30)
        cluster.calls_before = None
        with cluster.calls.counted() if short else cluster.steps.measured():
            attacker.begin(cluster)
            cluster.put_results("Failed", of_quiet_only=True)
            await asyncio.sleep(60)
    calls = cluster.calls
    longest = cluster.steps.longest_seconds
    print_line(
        f"{attack.__name__}: {calls.total} calls, {calls.most_in_a_step} in a step,"
        f" {cluster.calls_before} before the write; {longest * 1000:.1f} ms in a step,"
        f" of {cluster.steps.total_seconds:.2f} s"
    )
    assert cluster.calls_before is not None, "the quiet pod is written"
    assert calls.total <= attacker.calls
    assert calls.most_in_a_step <= CALLS_OF_A_STEP
    assert cluster.calls_before <= CALLS_BEFORE_THE_WRITE
    limits.check("no step over 50 ms", longest <= STEP_SECONDS)
