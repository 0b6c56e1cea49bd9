"""Annotates each Node with the number of its pods, and whether its kubelet renews its Lease: a join of three kinds."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import httpx
import kr8s
from kr8s.asyncio.objects import APIObject

ERRORS = (kr8s.ServerError, kr8s.APITimeoutError, httpx.HTTPError)

Key = tuple[str | None, str]


def node_of_pod(pod: APIObject) -> str:
    return str(pod.spec.get("nodeName", ""))


def node_of_lease(lease: APIObject) -> str:
    return lease.name if lease.spec.get("holderIdentity") == lease.name else ""


async def main() -> None:
    api = await kr8s.asyncio.api()
    nodes: dict[Key, APIObject] = {}
    pods: dict[Key, str] = {}
    leases: dict[Key, str] = {}
    dirty: asyncio.Queue[str] = asyncio.Queue()
    queued: set[str] = set()

    def enqueue(node: str) -> None:
        if node and node not in queued:
            queued.add(node)
            dirty.put_nowait(node)

    async def follow(
        kind: str,
        namespace: str,
        store: dict[Key, Any],
        value_of: Callable[[APIObject], Any],
        nodes_of: Callable[[APIObject], str],
    ) -> None:
        while True:
            try:
                if store:  # a watch does not report what was deleted before it
                    found = api.get(kind, namespace=namespace)
                    live = {(obj.namespace, obj.name) async for obj in found}
                    for key in store.keys() - live:
                        del store[key]
                    for _, name in nodes:
                        enqueue(name)
                async for event, obj in api.watch(kind, namespace=namespace):
                    key = obj.namespace, obj.name
                    if event == "DELETED":
                        store.pop(key, None)
                    else:
                        store[key] = value_of(obj)
                    enqueue(nodes_of(obj))
            except ERRORS as error:
                logging.warning("The watch of %s starts again: %s", kind, error)
            await asyncio.sleep(5)

    async def annotate(name: str) -> None:
        node = nodes.get((None, name))
        if node is None:
            return
        wanted = {
            "example.com/pods": str(sum(each == name for each in pods.values())),
            "example.com/leased": str(leases.get(("kube-node-lease", name)) == name),
        }
        if not wanted.items() <= node.annotations.items():
            await node.annotate(wanted)

    async def work() -> None:
        while True:
            name = await dirty.get()
            queued.discard(name)
            try:
                await annotate(name)
            except kr8s.NotFoundError:
                nodes.pop((None, name), None)
            except ERRORS as error:
                logging.warning("%s is reconciled again: %s", name, error)
                asyncio.get_running_loop().call_later(5, enqueue, name)

    lease = "leases.coordination.k8s.io"
    async with asyncio.TaskGroup() as group:
        group.create_task(
            follow("nodes", kr8s.ALL, nodes, lambda node: node, lambda node: node.name)
        )
        group.create_task(follow("pods", kr8s.ALL, pods, node_of_pod, node_of_pod))
        of_lease = follow(lease, "kube-node-lease", leases, node_of_lease, lambda lease: lease.name)
        group.create_task(of_lease)
        group.create_task(work())


asyncio.run(main())
