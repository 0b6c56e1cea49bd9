"""What a controller sends while its watches fail, and whether it knows afterwards what it missed.

Each library runs node_load on an embedded API server of its own, all at once. Meanwhile a pod is created on one node and
a pod is deleted on another one. When the fault has ended, both nodes must get new annotations.
"""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, Final

from support.programs import Program

from benchmarks import contenders, procfs
from benchmarks.reporting import Row, emit, progress
from kruise_probe.api.errors import NotFound
from kruise_probe.client.config import load_config
from kruise_probe.client.rest import RestClient
from kruise_probe_playground.testing.kube_api import KubeApi

NODES: Final = 10
PODS_PER_NODE: Final = 10
RECOVERY_SECONDS: Final = 120.0
CLOSED_AFTER_SECONDS: Final = 0.1
"""The age of a watch at most, while watches are closed."""

REFUSED, EXPIRED, CLOSED = "answered with 500", "closed and expired", "closed"
FAULTS: Final = (REFUSED, EXPIRED, CLOSED)
"""Of REFUSED, watches are answered with an error. Otherwise the server closes them soon, and of EXPIRED, it has
forgotten all versions by then: the next watch gets an event with the code 410."""


async def measure(libraries: tuple[str, ...], folder: Path, seconds: float) -> list[Row]:
    """A row for each fault and library."""
    rows: list[Row] = []
    for fault in FAULTS:
        progress(f"watches fail for {seconds:g} s: {fault}")
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(_measure(library, fault, folder, seconds))
                for library in libraries
            ]
        rows += [task.result() for task in tasks]
    return rows


async def _measure(library: str, fault: str, folder: Path, seconds: float) -> Row:
    async with AsyncExitStack() as stack:
        api = await asyncio.to_thread(stack.enter_context, KubeApi())
        _fill(api)
        kubeconfig = folder / f"kubeconfig-{library}-{fault.replace(' ', '-')}"
        api.write_kubeconfig(kubeconfig)
        program = await stack.enter_async_context(
            contenders.running_contender(
                contenders.contender(library, "node_load"),
                kubeconfig,
                folder / f"{library}-{fault.replace(' ', '-')}",
            )
        )
        for number in range(NODES):
            await _until_shown(api, number, PODS_PER_NODE)
        await asyncio.sleep(2.0)
        row = await _fault(api, program, fault, kubeconfig, seconds)
        emit(figures := {"benchmark": "runtimes", "library": library, "fault": fault, **row})
        return figures


async def _fault(
    api: KubeApi, program: Program, fault: str, kubeconfig: Path, seconds: float
) -> Row:
    before, pid = Counter(api.requests), program.process.pid
    used = procfs.cpu_seconds(pid)
    hurting = asyncio.create_task(_hurt(api, fault))
    await asyncio.sleep(seconds / 2)
    api.create(_pod(0, PODS_PER_NODE))
    await _delete(kubeconfig, f"/api/v1/namespaces/default/pods/{_pod_name(1, 0)}")
    await asyncio.sleep(seconds / 2)
    sent = _by_verb(Counter(api.requests) - before)
    sent["delete 200"] -= 1  # the one above
    if fault == REFUSED:
        del sent["watch 200"]  # those that were open before
    ended = not program.running
    cpu = None if ended else round(procfs.cpu_seconds(pid) - used, 2)
    hurting.cancel()
    api.heal()
    return {
        "seconds": seconds,
        "requests": sum(sent.values()),
        "by_verb": dict(sorted((+sent).items())),
        "cpu_s": cpu,
        "ended": ended,
        "recovered_s": None if ended else await _recovered(api),
        "log_kb": round(program.log.stat().st_size / 1000),
    }


async def _hurt(api: KubeApi, fault: str) -> None:
    if fault == REFUSED:
        api.fail("watch", times=None)
    while True:
        if fault == EXPIRED:
            api.expire()
        api.drop_watches()
        await asyncio.sleep(CLOSED_AFTER_SECONDS)


async def _recovered(api: KubeApi) -> float | None:
    """Seconds until both nodes show what happened during the fault; None for never."""
    loop = asyncio.get_running_loop()
    began_at = loop.time()
    with suppress(TimeoutError):
        await _until_shown(api, 0, PODS_PER_NODE + 1)
        await _until_shown(api, 1, PODS_PER_NODE - 1)
        return round(loop.time() - began_at, 1)
    return None


def _by_verb(requests: Counter[tuple[str, str, int]]) -> Counter[str]:
    found: Counter[str] = Counter()
    for (verb, _, code), count in requests.items():
        found[f"{verb or 'other'} {code}"] += count
    return found


async def _until_shown(api: KubeApi, number: int, pods: int) -> None:
    def shown(node: Any) -> bool:
        found = node["metadata"].get("annotations", {})
        return (found.get("example.com/pods"), found.get("example.com/leased")) == (
            str(pods),
            "True",
        )

    await api.until("nodes", _node_name(number), shown, seconds=RECOVERY_SECONDS)


def _fill(api: KubeApi) -> None:
    for number in range(NODES):
        name = _node_name(number)
        api.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        api.create(
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": name, "namespace": "kube-node-lease"},
                "spec": {"holderIdentity": name},
            }
        )
        for each in range(PODS_PER_NODE):
            api.create(_pod(number, each))


def _pod(number: int, each: int) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": _pod_name(number, each)},
        "spec": {
            "nodeName": _node_name(number),
            "containers": [{"name": "main", "image": "nginx"}],
        },
    }


def _node_name(number: int) -> str:
    return f"node-{number}"


def _pod_name(number: int, each: int) -> str:
    return f"pod-{number}-{each}"


async def _delete(kubeconfig: Path, path: str) -> None:
    config = load_config(str(kubeconfig))
    async with RestClient(config=config, field_manager="bench", user_agent="bench") as client:
        with suppress(NotFound):
            await client.request_raw("DELETE", f"{path}?gracePeriodSeconds=0", None)
