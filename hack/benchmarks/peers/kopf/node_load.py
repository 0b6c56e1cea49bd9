"""Annotates each Node with the number of its pods, and whether its kubelet renews its Lease: a join of three kinds."""

import asyncio
from collections import defaultdict
from typing import Any

import kopf
import kubernetes
from kubernetes.client import ApiException
from urllib3.exceptions import HTTPError

Index = kopf.Index[str, Any]


def of_kubelet(namespace: str, **_: Any) -> bool:
    return namespace == "kube-node-lease"


kubernetes.config.load_config()
core = kubernetes.client.CoreV1Api()
shown: dict[str, dict[str, str]] = {}
locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)


@kopf.index("pods")
async def pods(name: str, namespace: str, spec: kopf.Spec, **_: Any) -> dict[str, Any]:
    return {spec.get("nodeName", ""): (namespace, name)}


@kopf.index("leases.coordination.k8s.io", when=of_kubelet)
async def holders(name: str, spec: kopf.Spec, **_: Any) -> dict[str, Any]:
    return {name: spec.get("holderIdentity")}


@kopf.on.event("nodes")
async def node(
    event: kopf.RawEvent,
    name: str,
    annotations: kopf.Annotations,
    pods: Index,
    holders: Index,
    **_: Any,
) -> None:
    if event["type"] == "DELETED":
        shown.pop(name, None)
    else:
        shown[name] = dict(annotations)
        await annotate(name, pods, holders)


@kopf.on.event("pods")
async def pod(spec: kopf.Spec, pods: Index, holders: Index, **_: Any) -> None:
    await annotate(spec.get("nodeName", ""), pods, holders)


@kopf.on.event("leases.coordination.k8s.io", when=of_kubelet)
async def lease(name: str, pods: Index, holders: Index, **_: Any) -> None:
    await annotate(name, pods, holders)


async def annotate(node: str, pods: Index, holders: Index) -> None:
    """One at a time for each node: kopf handles all pods of a node at once."""
    async with locks[node]:
        while node in shown:
            wanted = {
                "example.com/pods": str(len(pods.get(node, ()))),
                "example.com/leased": str(node in holders.get(node, ())),
            }
            if wanted.items() <= shown[node].items():
                return
            try:
                change = {"metadata": {"annotations": wanted}}
                await asyncio.to_thread(core.patch_node, node, change)
                shown[node] |= wanted
            except (ApiException, HTTPError) as error:
                if getattr(error, "status", 0) == 404:
                    return
                await asyncio.sleep(5)  # kopf does not repeat handlers of events
