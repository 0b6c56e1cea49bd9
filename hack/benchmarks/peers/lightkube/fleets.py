"""Keeps as many pods as each Fleet wants."""

import asyncio
import logging
from typing import Any

import httpx2 as httpx
from lightkube import ALL_NS, ApiError, AsyncClient
from lightkube.generic_resource import create_namespaced_resource
from lightkube.models.core_v1 import Container, PodSpec
from lightkube.models.meta_v1 import ObjectMeta, OwnerReference
from lightkube.operators import exists
from lightkube.resources.core_v1 import Pod
from lightkube.types import PatchType

LABEL = "example.com/fleet"

Key = tuple[str, str]
Fleet = create_namespaced_resource("example.com", "v1", "Fleet", "fleets")


async def reconcile(client: AsyncClient, fleet: Any) -> None:
    name, namespace = fleet.metadata.name, fleet.metadata.namespace
    # From the server, as it has the pods that this program has just created.
    pods = client.list(Pod, namespace=namespace, labels={LABEL: name})
    owned = [pod async for pod in pods if not pod.metadata.deletionTimestamp]
    replicas = fleet.spec.get("replicas", 1)
    for _ in range(len(owned), replicas):
        await client.create(pod_of(fleet))
    for pod in owned[replicas:]:
        try:
            await client.delete(Pod, pod.metadata.name, namespace=namespace)
        except ApiError as error:
            if error.status.code != 404:
                raise
    if (fleet.status or {}).get("replicas") != replicas:
        change = {"status": {"replicas": replicas}}
        kind, merge = Fleet.Status, PatchType.MERGE
        await client.patch(kind, name, change, namespace=namespace, patch_type=merge)


def pod_of(fleet: Any) -> Pod:
    name, uid = fleet.metadata.name, fleet.metadata.uid
    owner = OwnerReference(
        apiVersion="example.com/v1",
        kind="Fleet",
        name=name,
        uid=uid,
        controller=True,
        blockOwnerDeletion=True,
    )
    metadata = ObjectMeta(
        generateName=f"{name}-",
        namespace=fleet.metadata.namespace,
        labels={LABEL: name},
        ownerReferences=[owner],
    )
    main = Container(name="main", image=fleet.spec.get("image", ""))
    return Pod(metadata=metadata, spec=PodSpec(containers=[main]))


async def main() -> None:
    client = AsyncClient()
    fleets: dict[Key, Any] = {}
    dirty: asyncio.Queue[Key] = asyncio.Queue()
    queued: set[Key] = set()

    def enqueue(key: Key) -> None:
        if key not in queued:
            queued.add(key)
            dirty.put_nowait(key)

    def fleet_changed(event: str, fleet: Any) -> None:
        key = fleet.metadata.namespace, fleet.metadata.name
        if event == "DELETED":
            fleets.pop(key, None)
        else:
            fleets[key] = fleet
            enqueue(key)

    async def follow_fleets() -> None:
        found = client.list(Fleet, namespace=ALL_NS)
        fresh = {(each.metadata.namespace, each.metadata.name): each async for each in found}
        fleets.clear()
        fleets.update(fresh)
        for key in fleets:
            enqueue(key)
        version = found.resourceVersion
        watch = client.watch(Fleet, namespace=ALL_NS, resource_version=version)
        async for event, fleet in watch:
            fleet_changed(event, fleet)

    async def follow_pods() -> None:
        for key in fleets:  # a watch does not report what was deleted before it
            enqueue(key)
        async for _, pod in client.watch(Pod, namespace=ALL_NS, labels={LABEL: exists()}):
            enqueue((pod.metadata.namespace, pod.metadata.labels[LABEL]))

    async def again(follow: Any) -> None:
        while True:
            try:
                await follow()
            except httpx.HTTPError as error:
                logging.warning("%s starts again: %s", follow.__name__, error)
            await asyncio.sleep(5)

    async def work() -> None:
        while True:
            key = await dirty.get()
            queued.discard(key)
            fleet = fleets.get(key)
            if fleet is None or fleet.metadata.deletionTimestamp:
                continue
            try:
                await reconcile(client, fleet)
            except httpx.HTTPError as error:
                logging.warning("%s is reconciled again: %s", key, error)
                asyncio.get_running_loop().call_later(5, enqueue, key)

    async with asyncio.TaskGroup() as group:
        group.create_task(again(follow_fleets))
        group.create_task(again(follow_pods))
        group.create_task(work())


asyncio.run(main())
