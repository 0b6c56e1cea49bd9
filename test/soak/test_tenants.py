"""Attacks of tenants within every documented limit, all at once beside a quiet namespace, on a real API server.

Each row is one attack on the manager in a namespace of its own, which goes on until it is cancelled. The daemons are hollow.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

from soak.conftest import Limits
from soak.forms import forms
from support import programs
from support.background import background
from support.control_plane import ControlPlane, prepared, staged
from support.hollow import CONDITION, Hollow, HollowCluster, node_name, pod_name, pod_object, probe
from support.output import print_line
from support.programs import Program
from support.target import condition
from support.wire import Json

from kruise_probe.api.times import format_time, utc_now

NODES = 4
QUIET_PODS = 3
MAX_MANAGER_MB = 256
PACE_SECONDS = 0.1
"""Between two requests of an attack: this process is also the daemons, and has the clock of what is measured."""
MAX_DELAY_SECONDS = 2.0
"""What the attacks may add to the time from a new result to its condition."""

Attack = Callable[[Hollow], Coroutine[Any, Any, None]]


async def edits_of_a_large_marker(tenant: Hollow) -> None:
    """Row 4: each edit has other words and labels, 39 KiB in all."""
    await tenant.add_pod(0, node=node_name(0))
    await tenant.add_marker(*large_probes(0))
    for number in count(1):
        await tenant.edit_marker(*large_probes(number))
        await asyncio.sleep(PACE_SECONDS)


def large_probes(number: int) -> list[Json]:
    probes: list[Json] = []
    for place in range(8):
        words = [f"{number:x}.{place}.{word:x}" for word in range(128)]
        labels = {f"example.com/l{place}-{key}": f"v{number}" for key in range(12)}
        probes.append(
            probe(
                f"p{place}",
                probe={"exec": {"command": words}, "periodSeconds": 60},
                podConditionType=f"example.com/c{place}",
                markerPolicy=[{"state": "Succeeded", "labels": labels}],
            )
        )
    return probes


async def pods_with_many_ports(tenant: Hollow) -> None:
    """Row 4: pods that are deleted leave their ports in no cache."""
    await tenant.add_marker()
    for number in count():
        body = pod_object(
            pod_name(number),
            node=node_name(number % NODES),
            ip="10.1.0.1",
            at=format_time(utc_now()),
            labels={"app": "web", "example.com/number": str(number)},
        )
        del body["status"]
        ports = [
            {"name": f"p{number % 9999}-{each}", "containerPort": each + 1} for each in range(1000)
        ]
        body["spec"]["containers"][0]["ports"] = ports
        await tenant.api.create(f"/api/v1/namespaces/{tenant.namespace}/pods", body)
        await tenant.remove_pod(pod_name(number))
        await asyncio.sleep(PACE_SECONDS)


async def markers_beyond_the_keys_of_a_pod(tenant: Hollow) -> None:
    """Rows 11 and the limits: each marker has 100 keys, and some are left out. Their labels are renamed."""
    await tenant.add_pods(20, nodes=NODES)
    for number in range(14):
        await tenant.add_marker(*many_keys(number, 0), name=f"m{number}")
    for turn in count(1):
        await tenant.edit_marker(*many_keys(turn % 14, turn), name=f"m{turn % 14}")
        await asyncio.sleep(PACE_SECONDS)


def many_keys(number: int, turn: int) -> list[Json]:
    labels = {f"example.com/m{number}-{key}": f"v{turn}" for key in range(25)}
    probes: list[Json] = []
    for place in range(4):
        policy = {"state": "Succeeded", "labels": labels}
        kind = f"example.com/m{number}-{place}"
        probes.append(probe(f"p{place}", podConditionType=kind, markerPolicy=[policy]))
    return probes


ROWS: tuple[Attack, ...] = (
    edits_of_a_large_marker,
    pods_with_many_ports,
    markers_beyond_the_keys_of_a_pod,
)


@asynccontextmanager
async def attacked(plane: ControlPlane) -> AsyncIterator[None]:
    """All rows run until the block ends."""
    async with AsyncExitStack() as stack:
        for attack in ROWS:
            namespace = attack.__name__.replace("_", "-")
            api = await stack.enter_async_context(prepared(plane, namespace))
            _ = await stack.enter_async_context(background(attack(Hollow(api, namespace))))
        yield


class Quiet:
    """Pods whose result flips when the test says so."""

    def __init__(self, stage: HollowCluster) -> None:
        self._stage = stage
        self._is_good = True
        stage.daemons.result_of = self._result_of

    def _result_of(self, pod: str, name: str) -> tuple[str, str]:
        if name.startswith("quiet#") and not self._is_good:
            return "Failed", "flipped"
        return "Succeeded", ""

    async def settle(self) -> None:
        await self._wait("True")

    async def flip(self) -> float:
        """Seconds from the daemons' writes until the conditions of all pods show it."""
        time = asyncio.get_running_loop().time
        self._is_good = not self._is_good
        await self._stage.daemons.write_changes()
        begun = time()
        await self._wait("True" if self._is_good else "False")
        return time() - begun

    async def _wait(self, status: str) -> None:
        def is_shown() -> bool:
            found = [self._stage.api.pods.newest(pod_name(n), "quiet") for n in range(QUIET_PODS)]
            shown = [condition(each, CONDITION).get("status") for each in found if each]
            return shown == [status] * QUIET_PODS

        await self._stage.api.pods.wait(f"conditions are {status}", is_shown, seconds=120)


async def flips(quiet: Quiet, seconds: float) -> list[float]:
    end = asyncio.get_running_loop().time() + seconds
    found: list[float] = []
    while asyncio.get_running_loop().time() < end:
        found.append(await quiet.flip())
        await asyncio.sleep(1.0)
    return sorted(found)


@forms(short="40-seconds", long="10-minutes")
async def test_a_quiet_namespace_has_its_results_beside_every_attack_at_once(
    control_plane: ControlPlane, short: bool, limits: Limits, tmp_path: Path
) -> None:
    async with staged(control_plane, "quiet") as stage:
        await stage.hollow.add_nodes(NODES)
        await stage.hollow.add_pods(QUIET_PODS, nodes=NODES)
        await stage.hollow.add_marker(name="quiet")
        quiet = Quiet(stage)
        async with (
            programs.running("manager", control_plane.kubeconfig, tmp_path) as manager,
            background(stage.daemons.follow()),
        ):
            await manager.ready()
            await quiet.settle()
            calm = await flips(quiet, 10.0)
            async with attacked(control_plane):
                delays = await flips(quiet, 40.0 if short else 600.0)
            await check(manager, calm, delays, limits)


async def check(manager: Program, calm: list[float], delays: list[float], limits: Limits) -> None:
    assert manager.running, manager.tail()
    slow = await manager.metric("kruise_probe_slow_steps_total")
    usual = calm[len(calm) // 2]
    print_line(
        f"{len(delays)} flips: median {delays[len(delays) // 2]:.2f} s, at most {delays[-1]:.2f} s, without an attack "
        f"{usual:.2f} s; {slow:.0f} steps over 50 ms; manager at most {manager.peak_mb:.0f} MB"
    )
    assert manager.peak_mb <= MAX_MANAGER_MB
    limits.check("no step of the manager takes 50 ms", not slow)
    limits.check(
        f"a result is {MAX_DELAY_SECONDS} s late at most", delays[-1] <= usual + MAX_DELAY_SECONDS
    )
