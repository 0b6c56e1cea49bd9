"""Annotates each Node with the number of its pods, and whether its kubelet renews its Lease: a join of three kinds."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import httpx2 as httpx
from lightkube import ALL_NS, ApiError, AsyncClient
from lightkube.resources.coordination_v1 import Lease
from lightkube.resources.core_v1 import Node, Pod

Key = tuple[str | None, str]


def name_of(obj: Any) -> str:
    return str(obj.metadata.name)


def node_of_pod(pod: Pod) -> str:
    return (pod.spec and pod.spec.nodeName) or ""


def node_of_lease(lease: Lease) -> str:
    holder = lease.spec and lease.spec.holderIdentity
    return name_of(lease) if holder == name_of(lease) else ""


async def main() -> None:
    client = AsyncClient()
    nodes: dict[Key, dict[str, str]] = {}
    pods: dict[Key, str] = {}
    leases: dict[Key, str] = {}
    dirty: asyncio.Queue[str] = asyncio.Queue()
    queued: set[str] = set()

    def enqueue(node: str) -> None:
        if node and node not in queued:
            queued.add(node)
            dirty.put_nowait(node)

    async def follow(
        kind: Any,
        store: dict[Key, Any],
        value_of: Callable[[Any], Any],
        nodes_of: Callable[[Any], str],
        **namespace: str,
    ) -> None:
        while True:
            try:
                fresh: dict[Key, Any] = {}
                async for obj in (found := client.list(kind, **namespace)):
                    fresh[obj.metadata.namespace, obj.metadata.name] = value_of(obj)
                    enqueue(nodes_of(obj))
                store.clear()
                store.update(fresh)
                for _, name in nodes:  # some of their objects may be gone
                    enqueue(name)
                version = found.resourceVersion
                async for event, obj in client.watch(kind, resource_version=version, **namespace):
                    key = obj.metadata.namespace, obj.metadata.name
                    if event == "DELETED":
                        store.pop(key, None)
                    else:
                        store[key] = value_of(obj)
                    enqueue(nodes_of(obj))
            except httpx.HTTPError as error:
                logging.warning("The watch of %s starts again: %s", kind.__name__, error)
            await asyncio.sleep(5)

    async def annotate(name: str) -> None:
        shown = nodes.get((None, name))
        if shown is None:
            return
        wanted = {
            "example.com/pods": str(sum(each == name for each in pods.values())),
            "example.com/leased": str(leases.get(("kube-node-lease", name)) == name),
        }
        if not wanted.items() <= shown.items():
            await client.patch(Node, name, {"metadata": {"annotations": wanted}})

    async def work() -> None:
        while True:
            name = await dirty.get()
            queued.discard(name)
            try:
                await annotate(name)
            except httpx.HTTPError as error:
                if isinstance(error, ApiError) and error.status.code == 404:
                    continue
                logging.warning("%s is reconciled again: %s", name, error)
                asyncio.get_running_loop().call_later(5, enqueue, name)

    def annotations_of(node: Node) -> dict[str, str]:
        return node.metadata.annotations or {}

    in_leases = follow(Lease, leases, node_of_lease, name_of, namespace="kube-node-lease")
    async with asyncio.TaskGroup() as group:
        group.create_task(follow(Node, nodes, annotations_of, name_of))
        group.create_task(follow(Pod, pods, node_of_pod, node_of_pod, namespace=ALL_NS))
        group.create_task(in_leases)
        group.create_task(work())


asyncio.run(main())
